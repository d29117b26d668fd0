// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
	"github.com/pointsman/pointsman/host/feed"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/host/plane"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/eventually"
)

// idle returns a dataplane without a process.
func idle(name string) *dataplane { return idleOf(name, track.New(nil)) }

func idleOf(name string, tracker *track.Tracker) *dataplane {
	h := &config.Host{MinSyncPeriod: config.Duration{Duration: time.Millisecond}, SyncPeriod: config.Duration{Duration: time.Minute}}
	set := New(Settings{
		Now: func() *config.Host { return h }, Tracker: tracker, Reports: report.New(time.Now), Log: hclog.NewNullLogger(),
		Applied: func(feed.Acked) {}, Refused: func() {},
	})
	set.life = context.Background()
	return &dataplane{host: set.reconciler, name: name, plugin: launch.Plugin{Name: name}, logged: newPluginLog(name, hclog.NewNullLogger())}
}

// filled returns a dataplane with these features that has confirmed the whole state.
func filled(t *testing.T, name string, tracker *track.Tracker, features ...sdk.Feature) *dataplane {
	t.Helper()
	p := idleOf(name, tracker)
	c := tracker.Cursor(sdk.Description{Name: name, Features: features})
	p.session = &session{dataplane: p, cursor: c, feed: feedOf(t, c), full: true}
	if u, ok := c.Next(); ok {
		c.Ack(u.To, nil)
	}
	return p
}

// feedOf returns a feed of the cursor. It does not run.
func feedOf(t *testing.T, c *track.Cursor) *feed.Feed {
	t.Helper()
	return feed.New(c, nil, feed.Settings{MinGap: time.Second, Period: time.Minute, Retry: time.Second})
}

// clusterService returns a Service of type ClusterIP without endpoints.
func clusterService(name string, addr netip.Addr, protocol corev1.Protocol) *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: addr.String(), ClusterIPs: []string{addr.String()},
		IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Protocol: protocol, Port: 80}},
	}
	return svc
}

// TestCheck refuses a swap that would lose a Service, unless it is forced.
func TestCheck(t *testing.T) {
	tracker := track.New(nil)
	tracker.SetService(clusterService("phone", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolSCTP))
	tracker.Synced()
	able, lacks := filled(t, "able", tracker, sdk.FeatureIPv4, sdk.FeatureSCTP), filled(t, "lacks", tracker, sdk.FeatureIPv4)
	for name, c := range map[string]struct {
		from, to *dataplane
		force    bool
		down     bool   // from does not serve
		want     string // part of the error; empty if there is none
	}{
		"both serve it":       {from: lacks, to: able},
		"only from serves it": {from: able, to: lacks, want: "1 Service would no longer be served: shop/phone/sctp4"},
		"nothing serves":      {from: able, to: lacks, down: true},
		"only from serves it, and the swap is forced": {from: able, to: lacks, force: true},
		"neither serves it":                           {from: lacks, to: filled(t, "other", tracker, sdk.FeatureIPv4)},
	} {
		set := newSet(Settings{}, c.from, c.to)
		set.state.Have = []plane.Instance{{ID: c.from.id, Served: !c.down}}
		b := task{on: c.to, want: plane.Want{Mode: c.to.name, Force: c.force}}
		err := set.check(t.Context(), b, c.from)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("a swap to %s: %v, want %q", name, err, c.want)
		}
	}
}

// newSet returns a Set of these dataplanes, of which the first serves.
func newSet(s Settings, all ...*dataplane) *Set {
	if s.Now == nil {
		s.Now = func() *config.Host { return new(config.Host) }
	}
	set := New(s)
	set.main.Store(all[0])
	for i, p := range all {
		p.id = plane.ID(i + 1)
		set.planes[p.id] = p
	}
	set.state.Facts, set.fileMode = plane.Facts{Served: all[0].name}, all[0].name
	return set
}

// TestHold waits until all updates are confirmed, but not for a dataplane without a process.
func TestHold(t *testing.T) {
	tracker := track.New(nil)
	tracker.Synced()
	unfilled, behind := filled(t, "unfilled", tracker, sdk.FeatureIPv4), filled(t, "behind", tracker, sdk.FeatureIPv4)
	tracker.SetService(clusterService("web", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
	ready := filled(t, "ready", tracker, sdk.FeatureIPv4)
	unfilled.session.full = false
	for p, want := range map[*dataplane]bool{ready: true, idle("away"): true, unfilled: false, behind: false} {
		ctx, cancel := limited(t, want)
		if err := p.Hold(ctx); (err == nil) != want {
			t.Errorf("%s: %v", p.name, err)
		}
		cancel()
	}
}

// limited returns a context with a generous deadline for a call that must succeed, and with a
// short one for a call that must fail.
func limited(t *testing.T, succeeds bool) (context.Context, context.CancelFunc) {
	if succeeds {
		return context.WithTimeout(t.Context(), eventually.Timeout)
	}
	return context.WithTimeout(t.Context(), 60*time.Millisecond)
}

// TestLastSwap returns an undone swap while it is recent or still wanted.
func TestLastSwap(t *testing.T) {
	for name, c := range map[string]struct {
		ago   time.Duration
		err   string
		asked string
		want  bool
	}{
		"made long ago":                        {ago: time.Hour, want: true},
		"undone just now":                      {err: "no luck", want: true},
		"undone on request":                    {err: "pointsman mode reset"},
		"undone long ago":                      {ago: time.Hour, err: "no luck"},
		"undone long ago, and still requested": {ago: time.Hour, err: "no luck", asked: "userspace", want: true},
	} {
		set := newSet(Settings{}, idle("iptables"))
		if c.asked != "" {
			set.state.Facts = set.state.Facts.WithRequest(c.asked, "iptables", false)
		}
		o := result{change: change{From: "iptables", To: "userspace"}, at: time.Now().Add(-c.ago), err: c.err, stays: "iptables"}
		set.last = o
		if c.err != "" {
			set.undone = o
		}
		if got := set.LastSwap(); (got != nil) != c.want {
			t.Errorf("one that was %s: %+v", name, got)
		}
		set.last = result{change: change{From: "iptables", To: "iptables", Same: true}, at: time.Now()}
		if got := set.LastSwap(); got == nil || (got.Error == c.err) != c.want {
			t.Errorf("one that was %s, and another binary since: %+v", name, got)
		}
	}
}

// TestStateEvents: each change of state is reported once. A process that something else runs continues to serve without
// this host.
func TestStateEvents(t *testing.T) {
	for _, c := range []struct {
		from, to State
		address  string
		want     string
		warns    bool
	}{
		{Stopped, Starting, "", report.PluginStarting, false},
		{Starting, Serving, "", report.PluginServing, false},
		{Suspect, Serving, "", report.PluginServing, false},
		{Serving, Suspect, "", report.PluginDown, true},
		{Serving, Waiting, "", report.PluginDown, true},
		{Starting, Waiting, "", report.PluginDown, true},
		{Waiting, Starting, "", report.PluginStarting, false},
		{Starting, Refused, "", report.PluginRefuses, true},
		{Serving, Stopped, "", report.PluginStopped, false},
		{Serving, Stopped, "unix:///nowhere", report.PluginLeft, false},
	} {
		p := idle("m")
		p.plugin.Address = c.address
		var got []report.Event
		p.host.Reports = report.New(time.Now, func(e report.Event) { got = append(got, e) })
		p.status = status{state: c.from, Plugin: admin.Plugin{PID: 7}}
		p.setState(c.to, "signal 9")
		p.setState(c.to, "signal 9") // the same state again
		if len(got) != 1 || got[0].Reason != c.want || got[0].Warning != c.warns || got[0].Object != "m" {
			t.Errorf("%s → %s: reported %+v, want %s, warning %t", c.from, c.to, got, c.want, c.warns)
		}
	}
}

// TestLossOf classifies the errors that end a process.
func TestLossOf(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		served time.Duration
		want   plane.Reason
	}{
		"it crashed":                             {errors.New("exited with code 2"), 0, plane.Crashed},
		"it cannot run here":                     {fmt.Errorf("configure: %w", &sdk.Refusal{Why: "no kernel"}), 0, plane.Unable},
		"a call was refused":                     {fmt.Errorf("make it active: %w", &sdk.Refusal{Why: "no room"}), time.Second, plane.Crashed},
		"another host has taken the plugin over": {wire.ErrFenced, time.Second, plane.Fenced},
		"an operator restarts it":                {fmt.Errorf("pointsman plugin restart m: %w", launch.ErrRestart), time.Second, plane.Asked},
	} {
		if l, text := lossOf(c.err, c.served); l.Reason != c.want || text == "" {
			t.Errorf("%s: %d, %q; want %d", name, l.Reason, text, c.want)
		}
	}
}

// TestNotSet: each kernel parameter that a plugin cannot set is reported once, and no other note is.
func TestNotSet(t *testing.T) {
	p := idle("m")
	var got []report.Event
	p.host.Reports = report.New(time.Now, func(e report.Event) { got = append(got, e) })
	const want = "/sys/x stays as it is, and was to be 7: read-only file system; set it on the machine itself"
	for range 2 { // as in two heartbeats
		p.reportNotes(wire.Vitals{Report: sdk.Report{Notes: []string{"another program has a chain", sdk.NotSet + want}}})
	}
	if len(got) != 1 || !got[0].Warning || got[0].Reason != report.ParameterNotSet || got[0].Message != want {
		t.Errorf("reported %+v", got)
	}
}
