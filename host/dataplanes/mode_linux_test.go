// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/sdk"
)

// underWay returns a Set with a swap from iptables to userspace in the given stage.
func underWay(t *testing.T, stage string) *Set {
	t.Helper()
	set := newFormerHost(t).next()
	now := time.Now()
	f := set.state.Facts.WithServed("iptables").WithRequest("userspace", "iptables", false)
	set.planes[1], set.planes[2] = set.serving(), set.newDataplane("userspace")
	set.planes[1].id, set.planes[2].id = 1, 2
	set.startable["userspace"] = true
	from := plane.Instance{ID: 1, Mode: "iptables", Build: set.buildOf("iptables"), Up: true, Synced: true, Role: sdk.Active, Served: true}
	to := plane.Instance{ID: 2, Mode: "userspace", Build: set.buildOf("userspace"), Up: true, Role: sdk.Standby}
	switch stage {
	case "proving":
		to.Synced, to.Role, from.Role = true, sdk.Active, sdk.Draining
	case "draining":
		f = f.WithServed("userspace")
		to.Synced, to.Role, to.Served = true, sdk.Active, true
		from.Role, from.Drained, from.Flows = sdk.Draining, now, 1
	}
	set.state = plane.State{Facts: f, Have: []plane.Instance{from, to}}
	if stage == "draining" {
		set.swap = &progress{change: change{From: "iptables", To: "userspace"}, stage: "proving", began: now, since: now}
	}
	set.updateSwap(set.want(), now)
	set.chooseMain()
	return set
}

// wanted returns the desired mode of a Set.
func wanted(set *Set) string { return set.state.Facts.Wanted(set.fileMode) }

// TestShow shows the serving mode, the requested mode and the stage of the swap.
func TestShow(t *testing.T) {
	idle := newFormerHost(t).next()
	if m := idle.Show(); m.Mode != "iptables" || m.File != "iptables" || m.Asked != "" || m.Swap != nil || m.Last != nil || idle.UnderWay() != nil {
		t.Errorf("at rest: %+v", m)
	}
	idle.state.Facts = idle.state.Facts.WithRequest("userspace", "iptables", false)
	if m := idle.Show(); m.Asked != "userspace" {
		t.Errorf("userspace was asked for: %+v", m)
	}
	staging := underWay(t, "staging")
	if s := staging.Show().Swap; s == nil || s.From != "iptables" || s.To != "userspace" || s.Stage != "staging" || s.Why != "pointsman mode swap" || !s.Until.IsZero() {
		t.Errorf("staging: %+v", s)
	}
	draining := underWay(t, "draining")
	if s := draining.UnderWay(); s == nil || draining.Mode() != "userspace" || s.Stage != "draining" || s.Until.IsZero() {
		t.Errorf("%s serves, and %+v", draining.Mode(), s)
	}
}

// TestSwapTo refuses impossible swaps, each with its own code, and starts the others.
func TestSwapTo(t *testing.T) {
	s := newFormerHost(t)
	s.host.Plugins = map[string]config.Plugin{"afar": {Address: "unix:///nowhere/plugin.sock"}}
	set := s.next()
	for mode, code := range map[string]int{"../x": http.StatusBadRequest, "ipvs": http.StatusNotFound} {
		var refused *admin.Error
		if _, err := set.SwapTo(admin.SwapAsk{To: mode}); !errors.As(err, &refused) || refused.Code != code || refused.Try == "" {
			t.Errorf("to %s: %+v, want %d", mode, refused, code)
		}
	}
	if err := set.checkSwap("afar"); err != nil {
		t.Errorf("to one that runs by itself: %v", err)
	}
	var dry *admin.Error
	if _, err := set.SwapTo(admin.SwapAsk{To: "userspace", DryRun: true}); !errors.As(err, &dry) || dry.Code != http.StatusConflict || !strings.Contains(dry.Why, "does not serve") {
		t.Errorf("a dry run where nothing serves: %v", err)
	}
	if _, err := set.SwapTo(admin.SwapAsk{To: "userspace", Force: true}); err != nil || wanted(set) != "userspace" {
		t.Errorf("to userspace: %v, and %s is wanted", err, wanted(set))
	}
	busy := underWay(t, "staging")
	var refused *admin.Error
	if _, err := busy.SwapTo(admin.SwapAsk{To: "userspace", DryRun: true}); !errors.As(err, &refused) || refused.Code != http.StatusConflict || !strings.Contains(refused.Why, "another swap is in progress") {
		t.Errorf("a dry run while another is under way: %v", err)
	}
	said, err := busy.SwapTo(admin.SwapAsk{To: "iptables"})
	if err != nil || !strings.Contains(said, "is the wanted mode again") || wanted(busy) != "iptables" {
		t.Errorf("back while another is under way: %q, %v, and %s is wanted", said, err, wanted(busy))
	}
	if m := busy.Show(); m.Wanted != "iptables" || m.Mode != "iptables" {
		t.Errorf("it shows %+v", m)
	}
	s.host.Mode = "afar"
	apart := s.next()
	if _, err := apart.SwapTo(admin.SwapAsk{To: "afar"}); !errors.As(err, &refused) || refused.Code != http.StatusConflict || !strings.Contains(refused.Why, "replace it there") {
		t.Errorf("to the very one that runs by itself: %v", err)
	}
}

// TestReset undoes a swap that has not passed its canary; otherwise it swaps to the file's mode.
func TestReset(t *testing.T) {
	for stage, want := range map[string]struct{ said, wanted string }{
		"proving":  {"the swap to userspace is undone", "iptables"},
		"draining": {"the swap to iptables begins", "iptables"},
	} {
		set := underWay(t, stage)
		if said, err := set.Reset(); err != nil || said != want.said || wanted(set) != want.wanted {
			t.Errorf("%s: %q, %v; %s is wanted", stage, said, err, wanted(set))
		}
	}
	set := newFormerHost(t).next()
	set.state.Facts = set.state.Facts.WithServed("iptables").WithRequest("userspace", "iptables", false)
	if said, err := set.Reset(); err != nil || said != "the mode is iptables, as in the config file" || set.state.Facts.Asked != "" {
		t.Errorf("the file's mode serves: %q, %v, %+v", said, err, set.state.Facts)
	}
}

// TestShowsTheSwapOfTheWantedMode: while several modes drain, the swap to the wanted mode is shown until its former mode
// is removed, and then what an earlier swap left.
func TestShowsTheSwapOfTheWantedMode(t *testing.T) {
	set := underWay(t, "draining")
	earlier := plane.Instance{ID: 3, Mode: "ipvs", Up: true, Synced: true, Role: sdk.Draining, Drained: time.Now().Add(-time.Hour), Flows: 1}
	set.state.Have = append([]plane.Instance{earlier}, set.state.Have...)
	set.updateSwap(set.want(), time.Now())
	if s := set.UnderWay(); s.From != "iptables" || s.To != "userspace" || time.Since(s.Until) > time.Minute || set.last.To != "" {
		t.Errorf("both drain: %+v, %+v", s, set.last)
	}
	set.state.Have = slices.DeleteFunc(set.state.Have, func(i plane.Instance) bool { return i.Mode == "iptables" })
	set.updateSwap(set.want(), time.Now())
	if s := set.UnderWay(); s.From != "ipvs" || s.Why != "an earlier swap left rules of ipvs" || set.last.From != "iptables" || set.last.err != "" {
		t.Errorf("iptables is removed: %+v, %+v", s, set.last)
	}
}

// TestResetOfADryRun ends a dry run of the serving mode. The serving process stays the wanted one.
func TestResetOfADryRun(t *testing.T) {
	set := newFormerHost(t).next()
	build := set.buildOf("iptables")
	set.state = plane.State{Facts: set.state.Facts.WithServed("iptables"), Have: []plane.Instance{
		{ID: 1, Mode: "iptables", Build: build, Up: true, Synced: true, Role: sdk.Active, Served: true},
	}}
	set.serving().id = 1
	if _, err := set.startDryRun("iptables", false); err != nil {
		t.Fatal(err)
	}
	set.state.Have = append(set.state.Have, plane.Instance{ID: 2, Mode: "iptables", Build: set.dryRun.Build, Up: true})
	set.updateSwap(set.want(), time.Now())
	if said, err := set.Reset(); err != nil || said != "the swap to iptables is undone" || set.want().Build != build {
		t.Errorf("%q, %v; build %s is wanted, and %s serves", said, err, set.want().Build, build)
	}
}

// TestPlugins lists the plugins in use and the installed ones.
func TestPlugins(t *testing.T) {
	set := newFormerHost(t).next()
	list := set.Plugins()
	if len(list) != 2 || list[0].Name != "iptables" || !list[0].InUse || list[1].Name != "userspace" || list[1].State != "unused" {
		t.Errorf("at rest: %+v", list)
	}
	list = underWay(t, "staging").Plugins()
	if len(list) != 2 || !list[0].InUse || list[1].InUse || list[1].State == "unused" || list[1].APIVersion != admin.APIVersion {
		t.Errorf("in a swap: %+v", list)
	}
	for _, c := range []struct {
		name string
		code int
	}{{"userspace", http.StatusConflict}, {"ipvs", http.StatusNotFound}} {
		_, err := set.Restart(c.name)
		var refused *admin.Error
		if !errors.As(err, &refused) || refused.Code != c.code {
			t.Errorf("restart %s: %v, want %d", c.name, err, c.code)
		}
		if err := set.Logs(t.Context(), c.name, false, nil); !errors.As(err, &refused) || refused.Code != c.code {
			t.Errorf("logs of %s: %v, want %d", c.name, err, c.code)
		}
	}
	if said, err := set.Restart("iptables"); err != nil || said != "plugin iptables restarts" {
		t.Errorf("restart the one in use: %q, %v", said, err)
	}
	set.serving().logged.buffer.add(admin.LogLine{Message: "hello"})
	var lines []string
	if err := set.Logs(t.Context(), "iptables", false, func(l admin.LogLine) error { lines = append(lines, l.Message); return nil }); err != nil || len(lines) != 1 {
		t.Errorf("its log: %q, %v", lines, err)
	}
}

// TestHealth lists the main dataplane first.
func TestHealth(t *testing.T) {
	set := underWay(t, "staging")
	all := set.Health()
	if len(all) != 2 || all[0].Name != "iptables" || all[0].Up || all[0].Filled || all[0].NoWriter != "" {
		t.Errorf("before a session: %+v", all)
	}
	p := set.serving()
	p.host.Tracker.SetService(clusterService("web", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
	if h := set.Health()[0]; h.Pending != 1 {
		t.Errorf("before a session %d ports are pending, and there is one", h.Pending)
	}
	c := p.host.Tracker.Cursor(sdk.Description{Name: p.name})
	p.session = &session{dataplane: p, cursor: c, feed: feedOf(t, c), full: true, role: sdk.Active}
	p.writer.busy = &sdk.Busy{Mode: p.name, PID: 7}
	p.followed = admin.Sync{Last: time.Now(), TookMS: 1.5, Error: "no room"}
	h := set.Health()[0]
	if !h.Up || !h.Filled || !h.Active || h.Writer || !strings.Contains(h.NoWriter, "holds the writer's lock") || h.Failure != "no room" {
		t.Errorf("without the lock: %+v", h)
	}
	if shown := set.Serving(); shown.Role != "active" || shown.Lock == "" || shown.Holder == "" {
		t.Errorf("without the lock the plugin is shown as %+v", shown)
	}
	if sync := set.Followed(); sync.TookMS != 1.5 || sync.Error != "no room" || sync.Last.IsZero() {
		t.Errorf("the progress is %+v", sync)
	}
	p.session.role = sdk.Draining
	if why := p.whyNoWriter(p.session); why != "" {
		t.Errorf("one that drains need not write: %q", why)
	}
}

// TestSurvey names rules that serve while the mode in use does not.
func TestSurvey(t *testing.T) {
	s := newFormerHost(t)
	s.script("userspace", `"cleanup --dry-run -o json --kube-proxy") echo '{"removed":["chain KUBE-PORTALS","chain B"]}';;`)
	set := s.next()
	set.surveyIfDue(t.Context(), time.Now(), time.Time{})
	if found := set.Unattended(); found != nil {
		t.Errorf("while its process is still to come: %q", found)
	}
	set.serving().status.state = Waiting
	next := set.surveyIfDue(t.Context(), time.Now(), time.Time{})
	if found := set.Unattended(); len(found) != 1 || found[0] != "userspace: chain KUBE-PORTALS and 1 more" {
		t.Errorf("found: %q", found)
	}
	set.state.Have = []plane.Instance{{Served: true}}
	set.surveyIfDue(t.Context(), time.Now(), next)
	if found := set.Unattended(); found != nil {
		t.Errorf("while the mode in use serves: %q", found)
	}
	set.state.Facts.Left, set.state.Have = []string{"gone", "soon", "ends", "kept"}, []plane.Instance{{Mode: "ends"}}
	set.startable["gone"], set.startable["ends"], set.startable["kept"] = false, true, true
	if found := set.Unattended(); !slices.Equal(found, []string{"gone may have some, and its plugin is not installed"}) {
		t.Errorf("beside modes that are being removed: %q", found)
	}
	set.state.Facts.Refused = &plane.Refusal{Mode: "acme"}
	if found := set.Unattended(); len(found) != 2 || !strings.Contains(found[1], "kept may have some, which are removed once the swap to acme succeeds") {
		t.Errorf("after a failed swap: %q", found)
	}
}

// TestPluginDir: the directory of a launched plugin is removed with its dataplane. That of a plugin at an address is not
// the host's: in a pod it is a volume of the plugin's container.
func TestPluginDir(t *testing.T) {
	for _, address := range []string{"", "unix:///run/acme.sock"} {
		p := idle("acme")
		p.plugin.Address = address
		set := newSet(Settings{Begun: &config.Host{StateDir: t.TempDir()}}, idle("iptables"), p)
		dir := plane.PluginDir(set.Begun.StateDir, "acme")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		set.end(task{Step: plane.Step{Do: plane.Stop, On: p.id}, on: p}, plane.Outcome{})
		if _, err := os.Stat(dir); (err == nil) != (address != "") {
			t.Errorf("address %q: %v", address, err)
		}
	}
}

// TestLastSwapRetried: the text about an undone swap says when it is retried.
func TestLastSwapRetried(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		next time.Time
		want string
	}{
		"it failed before traffic was switched": {now.Add(10 * time.Second), "; it is tried again in 10s"},
		"connections did not find their way":    {time.Time{}, ""},
	} {
		set := newSet(Settings{}, idle("iptables"))
		set.state.Facts = set.state.Facts.WithRequest("userspace", "iptables", false)
		set.startable["userspace"] = true
		set.state.Facts = set.state.Facts.WithRefusal(set.want(), "", "no luck", now, c.next)
		set.last = result{change: change{From: "iptables", To: "userspace"}, at: now, err: "no luck", stays: "iptables"}
		if got := set.LastSwap().Retried(now); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		set.swap = &progress{change: change{From: "iptables", To: "userspace"}, stage: "staging"}
		if got := set.LastSwap(); !got.Again.IsZero() {
			t.Errorf("during the retry the last swap is %+v", got)
		}
	}
}

// TestUndone describes failed swaps to another binary and to another mode.
func TestUndone(t *testing.T) {
	same := result{change: change{From: "userspace", To: "userspace", Same: true}, stays: "userspace", err: "no luck", undone: true}
	if got, want := undone(same, true), "userspace → userspace, another binary was undone, and userspace continues to serve: no luck"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	other := result{change: change{From: "iptables", To: "userspace"}, stays: "iptables", err: "no luck", undone: true}
	if got, want := undone(other, false), "iptables → userspace was undone, and iptables does not serve either: no luck; the kernel keeps its rules, and nothing updates them"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
