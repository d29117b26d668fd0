// SPDX-License-Identifier: Apache-2.0

package main

import (
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
	"github.com/pointsman/pointsman/sdk/wire"
)

// backend answers the admin socket: each answer is put together when it is asked for.
func (h *host) backend() admin.Backend {
	return admin.Backend{
		Status:   h.status,
		Services: h.dataplanes.Services,
		Service:  h.service,
		Explain:  h.dataplanes.Explain,
		Watch:    h.dataplanes.Watch,
		Plugins:  h.dataplanes.Plugins,
		Config:   h.config,
		Events:   h.events,
		Logs:     h.dataplanes.Logs,
		Restart:  h.dataplanes.Restart,
		Metrics:  h.servers.Metrics(),
		Log:      serverLog(h.log, "admin"),
		Modes:    admin.Modes{Show: h.dataplanes.Show, Diff: h.dataplanes.Diff, Swap: h.dataplanes.SwapTo, Reset: h.dataplanes.Reset},
	}
}

func (h *host) status() admin.Status {
	node := h.tracker.Node()
	counts := h.tracker.Counts()
	s := admin.Status{
		Node:      admin.Node{Name: node.Name, Addrs: phrase.Texts(node.Addrs)},
		Host:      admin.Host{Version: wire.Build(), PID: os.Getpid(), Started: h.started},
		Source:    h.from,
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
	s.Sync, s.Unserved = h.dataplanes.Followed(), h.dataplanes.Unserved()
	j := h.servers.Assess()
	s.Probes = admin.Probes{Healthz: j.Healthy && j.Eligible, Livez: j.Live, Readyz: j.Ready}
	s.Warnings = warnings(s, h.besides(j))
	s.Healthy = len(s.Warnings) == 0
	return s
}

// warned returns how many warnings the status has of each code.
func (h *host) warned() map[string]int {
	count := make(map[string]int)
	for _, w := range h.status().Warnings {
		count[w.Code]++
	}
	return count
}

func (h *host) besides(j health.Assessment) besides {
	b := besides{found: j.Findings, away: h.fault(), staleSince: h.follower.State().Since, unbound: h.servers.Unbound(),
		unwritten: h.dataplanes.Unwritten(), stateDir: h.settings.StateDir, unattended: h.dataplanes.Unattended()}
	for _, fault := range h.faults() {
		b.faults = append(b.faults, fault.Error())
	}
	for _, w := range h.tracker.Warned() {
		b.ofNode = append(b.ofNode, "Service "+w.Object+": "+w.Message)
	}
	b.ofNode = shown(b.ofNode, "external IPs are this node's own, and served")
	return b
}

// shown returns the first of texts, and a line that says how many more there are.
func shown(texts []string, more string) []string {
	if len(texts) <= shownProblems {
		return texts
	}
	return append(texts[:shownProblems:shownProblems], fmt.Sprintf("and %d more %s", len(texts)-shownProblems, more))
}

// service returns one Service, with what happened to it lately.
func (h *host) service(ctx context.Context, namespace, name string) (admin.ServiceDetail, error) {
	s, err := h.dataplanes.Service(ctx, namespace, name)
	s.Events = slices.DeleteFunc(h.events(), func(e admin.Event) bool {
		return !concerns(e.Object, namespace+"/"+name) && !slices.ContainsFunc(s.EndpointSlices, func(slice string) bool {
			return e.Object == "EndpointSlice "+namespace+"/"+slice
		})
	})
	return s, err
}

// concerns reports whether the object of an event is the Service, or one of its ports.
func concerns(object, service string) bool {
	rest, is := strings.CutPrefix(object, service)
	return is && (rest == "" || rest[0] == ':' || rest[0] == '/')
}

func (h *host) config() (admin.Config, error) {
	settings, err := json.Marshal(h.follower.Host())
	return admin.Config{Use: configUse(h.follower.State()), Settings: settings}, err
}

// published returns the settings for whoever asks over HTTP, without credentials: what a plugin's options hold
// may be secret.
func (h *host) published() ([]byte, error) {
	public, _ := h.follower.Host().Public()
	return json.MarshalIndent(public, "", "  ")
}

func (h *host) events() []admin.Event {
	list := []admin.Event{}
	for _, e := range h.reports.Recent() {
		list = append(list, admin.Event{Time: e.Time, Warning: e.Warning, Reason: e.Reason, Object: e.Object, Message: e.Message, Count: e.Count})
	}
	return list
}

// The codes of warnings. They stay the same, and docs/warnings.md explains them. Those of
// what the probes say too are package health's.
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

// besides is what is worth a warning and stands nowhere else in a status.
type besides struct {
	faults     []string  // the source's
	away       string    // why the source does not answer; empty: it does
	staleSince time.Time // since when the config file cannot be used
	found      []health.Finding
	unwritten  []string // what the next host must know, and could not be written down
	stateDir   string
	ofNode     []string // external IPs that are this node's, and are served
	unbound    []string // addresses of the host's own servers that cannot be bound
	unattended []string // rules in the kernel that serve, and that nothing updates, by mode
}

// warnings returns the things to look at in s and besides, the gravest first.
func warnings(s admin.Status, b besides) []admin.Warning {
	list := []admin.Warning{}
	warn := func(code, try, format string, args ...any) {
		list = append(list, admin.Warning{Code: code, Text: fmt.Sprintf(format, args...), Try: try})
	}
	d := s.Dataplane
	for _, f := range b.found {
		warn(f.Code, f.Try, "%s", f.Text)
	}
	if d.Restarts > 0 && time.Since(d.EndedAt) < dataplanes.Recently {
		warn(restartedLate, "pointsman plugin logs "+d.Name, "dataplane %s was restarted %s ago%s", d.Name, phrase.Round(time.Since(d.EndedAt)), because(d.LastEnd))
	}
	if d.Debug {
		warn(debugged, "remove plugins."+d.Name+".debug from the config file, and restart the host", "dataplane %s is debugged: its process is not ended if it hangs", d.Name)
	}
	if l := s.LastSwap; l != nil && l.Error != "" && !(s.Swap != nil && s.Swap.Moved()) { // a later one was made
		warn(swapFailed, "pointsman mode show", "the swap to %s %s: %s%s", l.To, ended(*l, d), l.Error, l.Retried(time.Now()))
	}
	if l := s.LastSwap; l != nil && l.Left != "" {
		warn(swapUnfinished, "pointsman cleanup --dry-run", "the swap to %s is not finished: %s", l.To, l.Left)
	}
	for _, rules := range b.unattended {
		warn(notUpdated, "pointsman mode show", "%s is %s; the kernel has rules that nothing updates: %s", d.Name, d.State, rules)
	}
	if s.Sync.Error != "" {
		warn(lastSyncFailed, "pointsman plugin logs "+d.Name, "the last update did not go in, and is tried again: %s", s.Sync.Error)
	}
	if len(s.Unserved) > 0 {
		warn(notAllServed, "pointsman status -o yaml", "not served as asked for: %s", byReason(s.Unserved))
	}
	if s.Config.Stale != "" {
		warn(configStale, "pointsman config validate "+s.Config.Path, "the config file cannot be used since %s, and the last good one stays in force: %s", b.staleSince.Format(time.RFC3339), s.Config.Stale)
	}
	if len(s.Config.Pending) > 0 {
		warn(configPending, "restart the host", "the config file was changed; what waits for a restart: %s", phrase.List(s.Config.Pending))
	}
	for _, why := range b.unbound {
		warn(notAnswering, "ss -ltnp", "the host does not answer, and tries again each 5s: %s", why)
	}
	for _, why := range b.unwritten {
		warn(notWritten, "df -h "+b.stateDir, "what the next host must know cannot be written down, and is tried again each second: %s", why)
	}
	for _, what := range b.ofNode {
		warn(nodeAsExternal, "pointsman config show --running", "%s", what)
	}
	for _, fault := range b.faults {
		warn(sourceFaulty, "", "%s", fault)
	}
	if b.away != "" {
		warn(sourceAway, "", "no changes are heard of: %s", b.away)
	}
	return list
}

// byReason counts what is not served.
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

// ended says how a swap ended that did not go well.
func ended(l admin.Swapped, d admin.Plugin) string {
	switch {
	case l.Stays == l.To && !l.Undone:
		return "failed and could not be undone"
	case d.Name == l.From && d.State != "serving":
		return "was undone, and " + l.From + " does not serve either"
	case d.Name != l.From:
		return "was undone"
	}
	return "was undone, and " + l.From + " serves on"
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func configUse(s config.State) admin.ConfigUse {
	use := admin.ConfigUse{Path: s.Host.From.Path, Hash: s.Hash, Loaded: s.Loaded}
	use.Pending = append([]string{}, s.Pending...) // in JSON a list, also when it is empty
	if s.Err != nil {
		use.Stale = s.Err.Error()
	}
	return use
}
