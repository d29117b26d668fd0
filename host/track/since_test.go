// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/sdk"
)

// TestSince follows since when the oldest change is owed.
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
		want int // the second since when a change is owed; 0: none
	}{
		1:  {"before Synced", func() {}, 0},
		2:  {"Synced", tracker.Synced, 2},
		3:  {"a Full is sent", next, 2},
		4:  {"it is confirmed", func() { ack() }, 0},
		5:  {"a Service is added", func() { tracker.SetService(newService("a", "10.96.0.1")) }, 5},
		6:  {"another Service is added", func() { tracker.SetService(newService("b", "10.96.0.2")) }, 5},
		7:  {"both are sent", next, 5},
		8:  {"one of them changes", func() { tracker.SetService(newService("b", "10.96.0.3")) }, 5},
		9:  {"the change is owed since it was made", func() { ack() }, 8},
		10: {"it is sent", next, 8},
		11: {"it fails: it is not owed until Retry", func() {
			ack(sdk.Failure{Name: out.Set[0].Name, Err: errors.New("busy")})
		}, 0},
		12: {"Retry", c.Retry, 12},
		13: {"it is sent", next, 12},
		14: {"it is confirmed", func() { ack() }, 0},
		15: {"the node changes", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeAll: true}) }, 15},
		16: {"the node changes back", func() { tracker.Configure(Facts{NodeName: "n1"}); next() }, 0},
		17: {"the node changes and is sent", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeAll: true}); next() }, 17},
		18: {"the node changes again in flight", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeBit: 3}) }, 17},
		19: {"the first change is confirmed", func() { ack() }, 18},
		20: {"Resync", c.Resync, 18},
		21: {"a Full is sent", next, 18},
		22: {"it is confirmed", func() { ack() }, 0},
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

// TestStanding follows the state of one Service.
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
		1: {"the Service is added", func() { tracker.SetService(newService("a", "10.96.0.1")) }, "pending", 1},
		2: {"a Full is sent", next, "pending", 0},
		3: {"it is confirmed", func() { c.Ack(out.To, nil) }, "served", 3},
		4: {"another Service is added", func() { tracker.SetService(newService("b", "10.96.0.9")); next(); c.Ack(out.To, nil) }, "served", 3},
		5: {"the Service changes", func() { tracker.SetService(newService("a", "10.96.0.2")) }, "pending", 5},
		6: {"it is sent", next, "pending", 5},
		7: {"it fails", func() { c.Ack(out.To, []sdk.Failure{busy}) }, "busy", 7},
		8: {"it fails again", func() { c.Retry(); next(); c.Ack(out.To, []sdk.Failure{busy}) }, "busy", 7},
		9: {"it is confirmed", func() { c.Retry(); next(); c.Ack(out.To, nil) }, "served", 9},
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

// TestTroubledSince: changes do not affect since when a Service has problems or no endpoint.
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
	check("it is added", begin, begin)
	svc.Spec.ExternalIPs = append(svc.Spec.ExternalIPs, "nothing")
	tracker.SetService(svc)
	check("it changes", begin, begin)
	tracker.SetSlice(newSlice("web-1", "web", "10.180.0.1 n1"))
	check("it has an endpoint", begin, time.Time{})
	svc.Spec.ExternalIPs = nil
	tracker.SetService(svc)
	check("it is corrected", time.Time{}, time.Time{})
	tracker.DeleteSlice("ns1", "web-1")
	check("the endpoint is deleted", time.Time{}, at)
}
