// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/dataplanes"
	"github.com/pointsman/pointsman/host/health"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/services"
	"github.com/pointsman/pointsman/host/watch"
	"github.com/pointsman/pointsman/sdk/wire"
)

// backend returns the functions that answer the admin socket and the status page.
func (h *host) backend() admin.Backend {
	q := h.queries()
	return admin.Backend{
		Status:   h.status,
		Services: q.Services,
		Service:  h.service,
		Explain:  q.Explain,
		Watch:    q.Watch,
		Plugins:  h.dataplanes.Plugins,
		Config:   h.config,
		Events:   h.recentEvents,
		Logs:     h.dataplanes.Logs,
		Restart:  h.dataplanes.Restart,
		Metrics:  h.servers.Metrics(),
		Log:      serverLog(h.log, "admin"),
		Mode:     h.dataplanes.Show,
		Diff:     q.Diff,
		Swap:     h.dataplanes.SwapTo,
		Reset:    h.dataplanes.Reset,
	}
}

// queries returns what answers questions about Services.
func (h *host) queries() services.Queries {
	return services.Queries{Tracker: h.tracker, Serving: h.dataplanes.Main, Swap: h.dataplanes.UnderWay}
}

func (h *host) status() admin.Status {
	node := h.tracker.Node()
	counts := h.tracker.Counts()
	s := admin.Status{
		Node:      admin.Node{Name: node.Name, Addrs: phrase.Texts(node.Addrs)},
		Host:      admin.Host{Version: wire.Build(), PID: os.Getpid(), Started: h.started},
		Source:    h.sourceName,
		Mode:      h.dataplanes.Mode(),
		Auto:      h.dataplanes.Auto(),
		Dataplane: h.dataplanes.Serving(),
		Services: admin.Counts{
			Services: counts.Services, Ports: counts.Names,
			EndpointSlices: counts.Slices, Endpoints: counts.Endpoints,
		},
		Config: configUse(h.follower.State()),
	}
	s.Swap, s.LastSwap = h.dataplanes.UnderWay(), h.dataplanes.LastSwap()
	s.Dataplane.APIVersion, s.Dataplane.Kind = admin.APIVersion, "Plugin"
	s.Sync, s.Unserved = h.dataplanes.Followed(), h.queries().Unserved()
	j := h.servers.Assess()
	s.Probes = admin.Probes{Healthz: j.Healthy && j.Eligible, Livez: j.Live, Readyz: j.Ready}
	o := observations{
		found: j.Findings, faults: h.faults(), sourceFault: h.fault(), staleSince: h.follower.State().Since, unbound: h.servers.Unbound(),
		unwritten: h.dataplanes.Unwritten(), stateDir: h.settings.StateDir, unattended: h.dataplanes.Unattended(),
	}
	for _, svc := range h.tracker.Troubled() {
		for _, w := range svc.Warnings {
			o.nodeAddrs = append(o.nodeAddrs, "Service "+svc.Key.String()+": "+w.Message)
		}
	}
	slices.Sort(o.nodeAddrs)
	s.Warnings = warnings(s, o)
	s.Healthy = len(s.Warnings) == 0
	return s
}

// warningCounts returns the number of current warnings by code.
func (h *host) warningCounts() map[string]int {
	count := make(map[string]int)
	for _, w := range h.status().Warnings {
		count[w.Code]++
	}
	return count
}

// service returns one Service with its recent events.
func (h *host) service(ctx context.Context, namespace, name string) (admin.ServiceDetail, error) {
	s, err := h.queries().Service(ctx, namespace, name)
	s.Events = slices.DeleteFunc(h.recentEvents(), func(e admin.Event) bool {
		return !isAbout(e.Object, namespace+"/"+name) && !slices.ContainsFunc(s.EndpointSlices, func(slice string) bool {
			return e.Object == "EndpointSlice "+namespace+"/"+slice
		})
	})
	return s, err
}

// isAbout reports whether the object of an event is the Service or one of its ports.
func isAbout(object, service string) bool {
	rest, is := strings.CutPrefix(object, service)
	return is && (rest == "" || rest[0] == ':' || rest[0] == '/')
}

func (h *host) config() (admin.Config, error) {
	settings, err := json.Marshal(h.follower.Host())
	return admin.Config{Use: configUse(h.follower.State()), Settings: settings}, err
}

// publicConfig returns the settings without secrets: everybody may ask for them over HTTP, and the
// options of a plugin may hold secrets.
func (h *host) publicConfig() ([]byte, error) {
	public, _ := h.follower.Host().Public()
	return json.MarshalIndent(public, "", "  ")
}

func (h *host) recentEvents() []admin.Event {
	list := []admin.Event{} // not null in JSON
	for _, e := range h.reports.Recent() {
		list = append(list, admin.Event(e))
	}
	return list
}

// Codes of warnings. They never change, and docs/warnings.md explains them. Package health has the
// codes of what the probes report.
const (
	restartedLate  = "W002"
	lastSyncFailed = "W003"
	notAllServed   = "W004"
	configStale    = "W005"
	configPending  = "W006"
	sourceFaulty   = "W007"
	sourceAway     = "W008"
	swapFailed     = "W009"
	swapUnfinished = "W010"
	notAnswering   = "W012"
	notWritten     = "W017"
	notUpdated     = "W018"
	nodeAsExternal = "W020"
	debugged       = "W021"
)

// observations are the causes of warnings that a status does not show elsewhere.
type observations struct {
	found       []health.Finding
	faults      []watch.Fault // in what the source reads
	sourceFault string        // why the source delivers no changes; empty if it does
	staleSince  time.Time     // since when the config file is invalid
	unbound     []string      // addresses that the host's servers cannot bind
	unwritten   string        // why the host cannot write its state to stateDir; empty if it can
	stateDir    string
	nodeAddrs   []string // external IPs that are this node's own and are served
	unattended  []string // rules in the kernel that no dataplane updates, by mode
}

// warnings returns the warnings about s and o, the most severe first.
func warnings(s admin.Status, o observations) []admin.Warning {
	list := []admin.Warning{}
	warnIf := func(is bool, code, try, format string, args ...any) {
		if is {
			list = append(list, admin.Warning{Code: code, Text: fmt.Sprintf(format, args...), Try: try})
		}
	}
	d, l := s.Dataplane, cmp.Or(s.LastSwap, &admin.Swapped{})
	for _, f := range o.found {
		warnIf(true, f.Code, f.Try, "%s", f.Text)
	}
	warnIf(d.Restarts > 0 && time.Since(d.EndedAt) < dataplanes.Recently, restartedLate, "pointsman plugin logs "+d.Name, "dataplane %s was restarted %s ago%s", d.Name, phrase.Round(time.Since(d.EndedAt)), reasonText(d.LastEnd))
	warnIf(d.Debug, debugged, "remove plugins."+d.Name+".debug from the config file, and restart the host", "dataplane %s is debugged: the host does not kill its process if it hangs", d.Name)
	isOver := s.Swap != nil && s.Swap.Moved() // a later swap succeeded
	warnIf(l.Error != "" && !isOver, swapFailed, "pointsman mode show", "the swap to %s failed: %s%s", l.To, l.Error, l.Retried(time.Now()))
	warnIf(l.Left != "", swapUnfinished, "pointsman cleanup --dry-run", "the swap to %s is not finished: %s", l.To, l.Left)
	for _, rules := range o.unattended {
		warnIf(true, notUpdated, "pointsman mode show", "rules in the kernel that nothing updates: %s", rules)
	}
	warnIf(s.Sync.Error != "", lastSyncFailed, "pointsman plugin logs "+d.Name, "the last update failed, and the host retries: %s", s.Sync.Error)
	warnIf(len(s.Unserved) > 0, notAllServed, "pointsman status -o yaml", "not served as specified: %s", byReason(s.Unserved))
	warnIf(s.Config.Stale != "", configStale, "pointsman config validate "+s.Config.Path, "the config file has been invalid since %s, and the host keeps its settings: %s", o.staleSince.Format(time.RFC3339), s.Config.Stale)
	warnIf(len(s.Config.Pending) > 0, configPending, "restart the host", "settings in the config file that need a restart of the host: %s", phrase.List(s.Config.Pending))
	for _, why := range o.unbound {
		warnIf(true, notAnswering, "ss -ltnp", "the host cannot bind an address, and retries every second: %s", why)
	}
	warnIf(o.unwritten != "", notWritten, "df -h "+o.stateDir, "the host cannot write its state, and retries every second: %s", o.unwritten)
	warnIf(len(o.nodeAddrs) > 0, nodeAsExternal, "pointsman config show --running", "%s", phrase.Some(o.nodeAddrs))
	for _, fault := range o.faults {
		warnIf(true, sourceFaulty, "", "%v", fault)
	}
	warnIf(o.sourceFault != "", sourceAway, "", "the source delivers no changes: %s", o.sourceFault)
	return list
}

// byReason returns the number of Services that are not served, by reason.
func byReason(problems []admin.Problem) string {
	count := make(map[string]int)
	for _, p := range problems {
		count[p.Reason]++
	}
	var list []string
	for _, reason := range slices.Sorted(maps.Keys(count)) {
		list = append(list, fmt.Sprintf("%d %s", count[reason], reason))
	}
	return phrase.List(list)
}

// reasonText returns a reason to append to a text.
func reasonText(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func configUse(s config.State) admin.ConfigUse {
	use := admin.ConfigUse{Path: s.Host.From.Path, Hash: s.Host.From.Hash, Loaded: s.Host.From.Loaded}
	use.Pending = append([]string{}, s.Pending...) // not null in JSON
	if s.Err != nil {
		use.Stale = s.Err.Error()
	}
	return use
}
