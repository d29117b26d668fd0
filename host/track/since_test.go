// SPDX-License-Identifier: Apache-2.0

package track

import (
	"errors"
	"testing"
	"time"

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
