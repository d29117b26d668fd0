// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/sdk"
)

// TestSince follows since when the oldest change is owed, and the standing of Service a.
func TestSince(t *testing.T) {
	tracker := New(nil)
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	second := 0
	tracker.now = func() time.Time { return begin.Add(time.Duration(second) * time.Second) }
	tracker.Configure(Facts{NodeName: "n1"})
	c := tracker.Cursor(sdk.Description{Name: "acme", Features: []sdk.Feature{sdk.FeatureIPv4}})
	name := sdk.Name{Namespace: "ns1", Service: "a", Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4}
	var out sdk.Update
	next := func() { out, _ = c.Next() }
	ack := func(failed ...sdk.Failure) { c.Ack(out.To, failed) }
	fail := func() { ack(sdk.Failure{Name: name, Err: errors.New("busy")}) }
	for i, step := range []struct {
		what  string
		do    func()
		want  int    // the second since when a change is owed; 0: none
		state string // of a, and the second since when; empty: not compared
	}{
		1:  {"before Synced", func() {}, 0, ""},
		2:  {"Synced", tracker.Synced, 2, ""},
		3:  {"a Full is sent", next, 2, ""},
		4:  {"it is confirmed", func() { ack() }, 0, ""},
		5:  {"a Service is added", func() { tracker.SetService(newService("a", "10.96.0.1")) }, 5, "pending 5"},
		6:  {"another Service is added", func() { tracker.SetService(newService("b", "10.96.0.2")) }, 5, "pending 5"},
		7:  {"both are sent", next, 5, "pending 5"},
		8:  {"one of them changes", func() { tracker.SetService(newService("a", "10.96.0.3")) }, 5, "pending 5"},
		9:  {"the change is owed since it was made", func() { ack() }, 8, "pending 8"},
		10: {"it is sent", next, 8, "pending 8"},
		11: {"it fails: it is not owed until Retry", fail, 0, "busy 11"},
		12: {"Retry", c.Retry, 12, "busy 11"},
		13: {"it is sent, and fails again", func() { next(); fail() }, 0, "busy 11"},
		14: {"it is confirmed", func() { c.Retry(); next(); ack() }, 0, "served 14"},
		15: {"the node changes", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeAll: true}) }, 15, ""},
		16: {"the node changes back", func() { tracker.Configure(Facts{NodeName: "n1"}); next() }, 0, ""},
		17: {"the node changes and is sent", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeAll: true}); next() }, 17, ""},
		18: {"the node changes again in flight", func() { tracker.Configure(Facts{NodeName: "n1", MasqueradeBit: 3}) }, 17, ""},
		19: {"the first change is confirmed", func() { ack() }, 18, "served 14"},
		20: {"Resync", c.Resync, 18, "pending 18"},
		21: {"a Full is sent", next, 18, "pending 18"},
		22: {"it is confirmed", func() { ack() }, 0, "served 22"},
		23: {"a needs a feature", func() {
			tracker.SetService(newService("a", "10.96.0.3", func(svc *corev1.Service) { svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }))
		}, 23, "withheld -1"},
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
		now, state, since := c.Standing(name), "served", -1
		switch {
		case now.Lacks != nil:
			state = "withheld"
		case now.Err != nil:
			state = now.Err.Error()
		case now.Pending:
			state = "pending"
		}
		if !now.Since.IsZero() {
			since = int(now.Since.Sub(begin).Seconds())
		}
		if got := fmt.Sprint(state, " ", since); step.state != "" && got != step.state {
			t.Errorf("%d, %s: a is %s, want %s", i, step.what, got, step.state)
		}
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
