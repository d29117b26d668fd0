// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// idle is a dataplane whose process is still to come.
func idle(name string) *dataplane {
	return &dataplane{name: name, part: make(chan struct{}, 1), reports: report.New(time.Now), supervisor: supervise.New(supervise.Plugin{Name: name}, supervise.Hooks{})}
}

// told is a dataplane that was told what there is, all of it, as one with these features.
func told(t *testing.T, name string, tracker *track.Tracker, features ...sdk.Feature) *dataplane {
	t.Helper()
	p := idle(name)
	p.cursor, p.filled = tracker.Cursor(sdk.Description{Name: name, Features: features}), true
	if u, ok := p.cursor.Next(); ok {
		p.cursor.Ack(u.To, nil)
	}
	return p
}

// TestCheck refuses a swap that would lose a Service, unless it is to be made all the same.
func TestCheck(t *testing.T) {
	tracker := track.New(nil)
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "phone"}}
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: "172.30.0.1", ClusterIPs: []string{"172.30.0.1"},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolSCTP, Port: 80}},
	}
	tracker.SetService(svc)
	tracker.Synced()
	able, lacks := told(t, "able", tracker, sdk.FeatureIPv4, sdk.FeatureSCTP), told(t, "lacks", tracker, sdk.FeatureIPv4)
	for name, c := range map[string]struct {
		from, to *dataplane
		force    bool
		want     string // in the error; empty: none
	}{
		"one that can":                   {from: lacks, to: able},
		"one that cannot":                {from: able, to: lacks, want: "1 Service would not be served any more: shop/phone/sctp4"},
		"one that cannot, all the same":  {from: able, to: lacks, force: true},
		"one that cannot, from one such": {from: lacks, to: told(t, "other", tracker, sdk.FeatureIPv4)},
	} {
		set := swapHost{&Set{main: c.from, members: []*dataplane{c.from, c.to}}}
		err := set.Check(t.Context(), swap.Plan{From: c.from.name, To: c.to.name, Force: c.force})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("a swap to %s: %v, want %q", name, err, c.want)
		}
	}
}

// TestHold waits until all there is was confirmed, but not for who has no process.
func TestHold(t *testing.T) {
	tracker := track.New(nil)
	tracker.Synced()
	unfilled, behind := told(t, "unfilled", tracker, sdk.FeatureIPv4), told(t, "behind", tracker, sdk.FeatureIPv4)
	newCanary(tracker, "node", nil).tell(afar, canaryAddr, 80, 0, netip.MustParseAddrPort("10.180.0.1:80"))
	ready := told(t, "ready", tracker, sdk.FeatureIPv4)
	unfilled.cursor, unfilled.filled = ready.cursor, false
	for p, want := range map[*dataplane]bool{ready: true, idle("away"): true, unfilled: false, behind: false} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*glance)
		if err := p.Hold(ctx); (err == nil) != want {
			t.Errorf("%s: %v", p.name, err)
		}
		cancel()
	}
}

// TestSetRole has who is to serve have a process, and who is to leave hear of it later.
func TestSetRole(t *testing.T) {
	for role, want := range map[sdk.Role]bool{sdk.Active: false, sdk.Standby: true, sdk.Draining: true, sdk.Yielded: true} {
		p := idle("m")
		ctx, cancel := context.WithTimeout(t.Context(), 3*glance)
		if err := p.SetRole(ctx, role); (err == nil) != want || p.want != role {
			t.Errorf("%s: %v, and the next process is told %s", role, err, p.want)
		}
		cancel()
	}
}

// TestFlows: nobody can say what a process has begun before it is in session, and one that
// is gone has begun nothing.
func TestFlows(t *testing.T) {
	p := idle("away")
	if n, err := p.Flows(t.Context()); err == nil {
		t.Errorf("before its process was looked for it has %d", n)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	p.supervisor.Run(ctx) // there is no such program
	if n, err := p.Flows(t.Context()); n != 0 || err != nil {
		t.Errorf("once it has ended it has %d, %v", n, err)
	}
}

// TestNote writes down who serves, and nobody else.
func TestNote(t *testing.T) {
	main, other := idle("iptables"), idle("userspace")
	main.slot = "b"
	set := &Set{Settings: Settings{Begun: &config.Host{StateDir: t.TempDir()}, Reports: main.reports}, main: main}
	for p, want := range map[*dataplane]string{other: "", main: "iptables"} {
		set.note(p)
		if got, _ := readInForce(set.Begun.StateDir); p == main && !got.equal(inForce{Serving: want, Slot: "b"}) || p == other && got.Serving == other.name {
			t.Errorf("after %s: %+v is written", p.name, got)
		}
	}
}

// TestLastSwap speaks of a swap that was undone for as long as it is news, or still wanted.
func TestLastSwap(t *testing.T) {
	for name, c := range map[string]struct {
		ago   time.Duration
		err   string
		asked string
		want  bool
	}{
		"made long ago":                    {ago: time.Hour, want: true},
		"undone just now":                  {err: "no luck", want: true},
		"undone because that was wanted":   {err: "pointsman mode reset"},
		"undone long ago":                  {ago: time.Hour, err: "no luck"},
		"undone long ago, and still asked": {ago: time.Hour, err: "no luck", asked: "userspace", want: true},
	} {
		h := &config.Host{Mode: "iptables"}
		set := &Set{Settings: Settings{Now: func() *config.Host { return h }}, main: idle("iptables")}
		set.noted.Asked, set.noted.File = c.asked, "iptables"
		set.runner = swap.New(swapHost{set}, "", set.main)
		set.runner.Resume(swap.Machine{Last: swap.Outcome{At: time.Now().Add(-c.ago), Err: c.err}}, set.main, nil)
		if got := set.LastSwap(); (got != nil) != c.want {
			t.Errorf("one that was %s: %+v", name, got)
		}
		set.remember(swap.Outcome{Plan: swap.Plan{From: "iptables", To: "userspace"}, At: time.Now().Add(-c.ago), Err: c.err})
		set.runner.Resume(swap.Machine{Last: swap.Outcome{Plan: swap.Plan{From: "iptables", To: "iptables", Same: true}, At: time.Now()}}, set.main, nil)
		if got := set.LastSwap(); got == nil || (got.Error == c.err) != c.want {
			t.Errorf("one that was %s, and another binary since: %+v", name, got)
		}
	}
}

// TestTransitions has each change of state be an event, and a swap hear of a process that
// is gone, or does not answer.
func TestTransitions(t *testing.T) {
	const why = "signal 9"
	for _, c := range []struct {
		from, to supervise.State
		why      string
		reason   string
		warns    bool
		gone     bool
	}{
		{supervise.Stopped, supervise.Starting, "", report.PluginStarting, false, false},
		{supervise.Starting, supervise.Serving, "", report.PluginServing, false, false},
		{supervise.Starting, supervise.Trying, why, report.PluginStarting, false, false},
		{supervise.Trying, supervise.Serving, "", report.PluginServing, false, false},
		{supervise.Suspect, supervise.Serving, "", report.PluginServing, false, false},
		{supervise.Serving, supervise.Suspect, why, report.PluginDown, true, true},
		{supervise.Serving, supervise.Waiting, why, report.PluginDown, true, true},
		{supervise.Serving, supervise.Starting, why, report.PluginDown, true, true},
		{supervise.Starting, supervise.Waiting, why, report.PluginDown, true, true},
		{supervise.Waiting, supervise.Starting, why, report.PluginStarting, false, false},
		{supervise.Starting, supervise.Refused, why, report.PluginRefuses, true, true},
		{supervise.Suspect, supervise.Quarantined, why, report.PluginBanned, true, true},
		{supervise.Quarantined, supervise.Starting, why, report.PluginStarting, false, false},
		{supervise.Serving, supervise.Stopped, why, report.PluginStopped, false, false},
		{supervise.Serving, supervise.Serving, why, report.PluginNote, false, false},
	} {
		p := idle("m")
		var told []report.Event
		p.reports = report.New(time.Now, func(e report.Event) { told = append(told, e) })
		gone := ""
		p.lost = func(_ *dataplane, why string) { gone = why }
		p.transition(supervise.Transition{From: c.from, To: c.to, Why: c.why, PID: 7})
		if len(told) != 1 || told[0].Reason != c.reason || told[0].Warning != c.warns {
			t.Errorf("%s → %s: told %+v, want %s, warning %t", c.from, c.to, told, c.reason, c.warns)
		}
		if (gone == why) != c.gone {
			t.Errorf("%s → %s: a swap hears %q, want that it is gone: %t", c.from, c.to, gone, c.gone)
		}
	}
}

// TestNotSet has what a plugin says of a parameter out of its reach be an event, and what
// else it says none.
func TestNotSet(t *testing.T) {
	p := idle("m")
	p.log, p.book = hclog.NewNullLogger(), newLogBook()
	var told []report.Event
	p.reports = report.New(time.Now, func(e report.Event) { told = append(told, e) })
	p.line(wire.LogLine{Level: slog.LevelWarn, Message: "cannot do something else"})
	p.line(wire.LogLine{Level: slog.LevelWarn, Message: sdk.NotSet, Attrs: []slog.Attr{
		slog.String("path", "/sys/x"), slog.String("value", "7"), slog.String("err", "read-only file system"),
	}})
	const want = "/sys/x stays as it is, and was to be 7: read-only file system; set it on the machine itself"
	if len(told) != 1 || !told[0].Warning || told[0].Reason != report.ParameterNotSet || told[0].Message != want {
		t.Errorf("told %+v", told)
	}
}

// TestHeads has the file's mode be gone to when nothing is in the way, and not before.
func TestHeads(t *testing.T) {
	const a, b, c = "iptables", "userspace", "ipvs"
	plan := swap.Plan{From: a, To: b}
	for _, w := range []struct {
		stage       swap.Stage
		undo        string
		serves      string
		mode        string
		there, free bool
	}{
		{swap.Idle, "", a, a, true, true},
		{swap.Idle, "", a, b, false, true},
		{swap.Staging, "", a, a, false, false}, // b will serve, if all goes well
		{swap.Staging, "", a, b, false, false},
		{swap.Returning, "", a, a, false, false},
		{swap.Draining, "", a, b, true, false}, // the host does not speak of b yet
		{swap.Draining, "", b, a, false, true}, // it is there still, and can be had back
		{swap.Draining, "", b, c, false, false},
		{swap.Draining, "it failed", b, a, false, false},
		{swap.Clearing, "", b, a, false, false},
		{swap.Clearing, "", b, b, true, false},
	} {
		there, free := heads(swap.Machine{Stage: w.stage, Plan: plan, Undo: w.undo}, w.serves, w.mode)
		if there != w.there || free != w.free {
			t.Errorf("%s of %s while %s serves, to %s: there %t, free %t", w.stage, plan, w.serves, w.mode, there, free)
		}
	}
}
