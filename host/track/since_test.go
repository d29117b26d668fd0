// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/sdk"
)

// TestSince follows since when the oldest of what is owed is.
func TestSince(t *testing.T) {
	tracker := New(nil)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	second := 0
	tracker.now = func() time.Time { return begin.Add(time.Duration(second) * time.Second) }
	tracker.Configure(Facts{NodeName: "n1"})
	c := tracker.Cursor(sdk.Description{Name: "acme", Features: []sdk.Feature{sdk.FeatureIPv4}})
	var out sdk.Update
	next := func() { out, _ = c.Next() }
	ack := func(failed ...sdk.Failure) { c.Ack(out.To, failed) }
	for i, step := range []struct {
		what string
		do   func()
		want int // the second since when something is owed; 0: nothing is
	}{
		1:  {"nothing was heard yet", func() {}, 0},
		2:  {"everything was heard", tracker.Synced, 2},
		3:  {"it is handed out", next, 2},
		4:  {"and confirmed", func() { ack() }, 0},
		5:  {"a Service comes", func() { tracker.SetService(newService("a", "10.96.0.1")) }, 5},
		6:  {"another one", func() { tracker.SetService(newService("b", "10.96.0.2")) }, 5},
		7:  {"both are handed out", next, 5},
		8:  {"and one of them changes", func() { tracker.SetService(newService("b", "10.96.0.3")) }, 5},
		9:  {"the change is owed since it came", func() { ack() }, 8},
		10: {"it is handed out", next, 8},
		11: {"and fails: it is not owed until it is offered again", func() {
			ack(sdk.Failure{Name: out.Set[0].Name, Err: errors.New("busy")})
		}, 0},
		12: {"which is now", c.Retry, 12},
		13: {"it is handed out", next, 12},
		14: {"and goes in", func() { ack() }, 0},
		15: {"the node changes", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeAll: true}) }, 15},
		16: {"and changes back", func() { tracker.Configure(Facts{NodeName: "n1"}); next() }, 0},
		17: {"it changes", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeAll: true}); next() }, 17},
		18: {"and once more, on the way", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeBit: 3}) }, 17},
		19: {"the first of which arrives", func() { ack() }, 18},
		20: {"the dataplane has lost the thread", c.Resync, 18},
		21: {"it is told everything", next, 18},
		22: {"and confirms it", func() { ack() }, 0},
	} {
		if step.do == nil {
			continue
		}
		second = i
		step.do()
		want := time.Time{}
		if step.want != 0 {
			want = begin.Add(time.Duration(step.want) * time.Second)
		}
		if got := c.Status().Since; !got.Equal(want) {
			t.Errorf("%d, %s: owed since %v, want %d", i, step.what, got, step.want)
		}
	}
}

// TestStanding follows what is said of one Service, and since when.
func TestStanding(t *testing.T) {
	tracker := New(nil)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	second := 0
	tracker.now = func() time.Time { return begin.Add(time.Duration(second) * time.Second) }
	tracker.Configure(Facts{NodeName: "n1"})
	tracker.Synced()
	c := tracker.Cursor(sdk.Description{Name: "acme", Features: []sdk.Feature{sdk.FeatureIPv4}})
	name := sdk.Name{Namespace: "ns1", Service: "a", Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4}
	var out sdk.Update
	next := func() { out, _ = c.Next() }
	busy := sdk.Failure{Name: name, Err: errors.New("busy")}
	sctp := newService("a", "10.96.0.3")
	sctp.Spec.Ports[0].Protocol = corev1.ProtocolSCTP
	for i, step := range []struct {
		what  string
		do    func()
		state string
		since int
	}{
		1: {"it comes", func() { tracker.SetService(newService("a", "10.96.0.1")) }, "pending", 1},
		2: {"everything is handed out", next, "pending", 0},
		3: {"and confirmed", func() { c.Ack(out.To, nil) }, "served", 3},
		4: {"another one comes", func() { tracker.SetService(newService("b", "10.96.0.9")); next(); c.Ack(out.To, nil) }, "served", 3},
		5: {"it changes", func() { tracker.SetService(newService("a", "10.96.0.2")) }, "pending", 5},
		6: {"is handed out", next, "pending", 5},
		7: {"and fails", func() { c.Ack(out.To, []sdk.Failure{busy}) }, "busy", 7},
		8: {"and again", func() { c.Retry(); next(); c.Ack(out.To, []sdk.Failure{busy}) }, "busy", 7},
		9: {"and goes in", func() { c.Retry(); next(); c.Ack(out.To, nil) }, "served", 9},
	} {
		if step.do == nil {
			continue
		}
		second = i
		step.do()
		got := c.Standing(name)
		state := "served"
		switch {
		case got.Err != nil:
			state = got.Err.Error()
		case got.Pending:
			state = "pending"
		}
		if want := begin.Add(time.Duration(step.since) * time.Second); state != step.state || !got.Since.Equal(want) {
			t.Errorf("second %d, %s: %s since %s, want %s since %s", i, step.what, state, got.Since, step.state, want)
		}
	}
	tracker.SetService(sctp)
	name.Protocol = sdk.SCTP
	if got := c.Standing(name); len(got.Lacks) == 0 {
		t.Errorf("withheld: %+v", got)
	}
}

// TestTroubledSince: since when a Service has problems, and no endpoint, outlasts its changes.
func TestTroubledSince(t *testing.T) {
	tracker := New(nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	tracker.now = func() time.Time { return at }
	tracker.Configure(Facts{NodeName: "n1"})
	begin := at
	svc := newService("web", "172.30.0.1")
	svc.Spec.ExternalIPs = []string{"none"}
	check := func(what string, troubled, empty time.Time) {
		t.Helper()
		s, _ := tracker.Service(Key{"ns1", "web"})
		if !s.Troubled.Equal(troubled) || !s.Ports[0].Empty.Equal(empty) {
			t.Errorf("%s: troubled since %s, empty since %s; want %s, %s", what, s.Troubled, s.Ports[0].Empty, troubled, empty)
		}
		at = at.Add(time.Second)
	}
	tracker.SetService(svc)
	check("it comes", begin, begin)
	svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, "nothing")
	tracker.SetService(svc)
	check("it changes", begin, begin)
	tracker.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1"))
	check("it has an endpoint", begin, time.Time{})
	svc.Spec.ExternalIPs = nil
	tracker.SetService(svc)
	check("it is mended", time.Time{}, time.Time{})
	tracker.DeleteSlice("ns1", "web-1")
	check("the endpoint is gone", time.Time{}, at)
}
