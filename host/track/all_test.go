// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"slices"
	"testing"
)

// TestAllDoesNotBlockChanges: the tracker accepts changes while a caller handles a Service, and a Service that was
// deleted meanwhile is left out.
func TestAllDoesNotBlockChanges(t *testing.T) {
	t.Parallel()
	tracker, _ := newTracker()
	var want []string
	for i := range 300 {
		name := fmt.Sprintf("web-%d", i)
		tracker.SetService(newService(name, fmt.Sprintf("172.30.%d.%d", i/250, 1+i%250)))
		want = append(want, "ns1/"+name)
	}
	slices.Sort(want)
	var got []string
	for s := range tracker.All() {
		if !tracker.mu.TryLock() {
			t.Fatalf("a change waits while the caller handles %s", s.Key)
		}
		tracker.mu.Unlock()
		if got = append(got, s.Key.String()); len(got) == 100 {
			tracker.DeleteService("ns1", "web-99") // the last by name
		}
	}
	if !slices.Equal(got, want[:len(want)-1]) {
		t.Errorf("%d Services are listed; want all but the last of %d, in order", len(got), len(want))
	}
	for range tracker.All() {
		break
	}
}
