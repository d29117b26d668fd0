// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// TestSlowest follows what waits, and what waited, as the clock goes on.
func TestSlowest(t *testing.T) {
	tracker := New(nil)
	begin := time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)
	second := 0
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	tracker.now = func() time.Time { return at(second) }
	tracker.Configure(Facts{NodeName: "n1"})
	tracker.Synced()
	c := tracker.Cursor(sdk.Description{Name: "acme", Features: []sdk.Feature{sdk.FeatureIPv4}})
	var out sdk.Update
	next := func() { out, _ = c.Next() }
	ack := func(failed ...sdk.Failure) { c.Ack(out.To, failed) }
	for _, step := range []struct {
		second int
		what   string
		do     func()
		want   string
	}{
		{0, "nothing is there", func() { next(); ack() }, ""},
		{1, "a comes", func() { tracker.SetService(newService("a", "10.96.0.1")) }, "a waits 0s"},
		{3, "b comes", func() { tracker.SetService(newService("b", "10.96.0.2")) }, "a waits 2s, b waits 0s"},
		{4, "both are handed out", next, "a waits 3s, b waits 1s"},
		{5, "b changes on the way, and waits as before", func() { tracker.SetService(newService("b", "10.96.0.3")) }, "a waits 4s, b waits 2s"},
		{6, "they are confirmed; the change of b waits, and not as long", func() { ack() }, "a waited 5s, b waited 3s"},
		{8, "it is confirmed", func() { next(); ack() }, "a waited 5s, b waited 3s"},
		{40, "c comes", func() { tracker.SetService(newService("c", "10.96.0.4")) }, "a waited 5s, b waited 3s, c waits 0s"},
		{44, "it fails: it is served otherwise, and does not wait", func() {
			next()
			ack(sdk.Failure{Name: out.Set[0].Name, Err: errors.New("busy")})
		}, "a waited 5s, b waited 3s"},
		{46, "it is offered again, and confirmed", func() { c.Retry(); next(); ack() }, "a waited 5s, b waited 3s, c waited 0s"},
		{59, "the minute is not over", func() {}, "a waited 5s, b waited 3s, c waited 0s"},
		{60, "what was first is forgotten", func() {}, "c waited 0s"},
		{61, "b goes; that is no wait of a Service", func() { tracker.DeleteService("ns1", "b"); next(); ack() }, "c waited 0s"},
		{500, "all is forgotten", func() {}, ""},
	} {
		second = step.second
		step.do()
		var got []string
		for _, w := range c.Slowest() {
			verb := "waited"
			if w.Until.IsZero() {
				verb = "waits"
			}
			got = append(got, fmt.Sprint(w.Name.Service, " ", verb, " ", w.lasted(at(second))))
		}
		if strings.Join(got, ", ") != step.want {
			t.Errorf("at %d s, %s: %q, want %q", step.second, step.what, got, step.want)
		}
	}
}

// TestWaitsAreFew keeps ten of many, the longest.
func TestWaitsAreFew(t *testing.T) {
	var all waited
	begin := time.Unix(1000, 0)
	for i := range 5000 {
		long := time.Duration(i*7919%5000) * time.Millisecond
		all.add(Wait{Name: sdk.Name{Service: fmt.Sprint(i)}, Since: begin.Add(-long), Until: begin})
	}
	kept := all.lately(begin)
	var longest []time.Duration
	for _, w := range kept {
		longest = append(longest, w.lasted(begin))
	}
	if len(kept) != mostWaits || longest[0] != 4999*time.Millisecond || longest[mostWaits-1] != 4990*time.Millisecond || !slices.IsSortedFunc(longest, func(a, b time.Duration) int { return int(b - a) }) {
		t.Errorf("kept %v", longest)
	}
}
