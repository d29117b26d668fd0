// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"testing"
	"time"
)

// TestRates: one that asks too often keeps no other address from asking, from whichever port it asks, and
// what is kept of many addresses is bounded.
func TestRates(t *testing.T) {
	now := noon
	r := newRates(1, 10, func() time.Time { return now })
	passed := 0
	for port := range 30 {
		if r.allow(fmt.Sprintf("127.0.0.1:%d", 1000+port)) {
			passed++
		}
	}
	if passed != 10 {
		t.Errorf("of 30 at once %d came through, want 10", passed)
	}
	for _, other := range []string{"127.0.0.2:1000", "[::1]:1000", "@"} {
		if !r.allow(other) {
			t.Errorf("%s may not ask, because 127.0.0.1 asked too often", other)
		}
	}
	if r.allow("[::ffff:127.0.0.1]:1000") {
		t.Error("127.0.0.1 may ask again, by another way to write it")
	}
	now = now.Add(time.Second)
	if !r.allow("127.0.0.1:1000") {
		t.Error("a second later it may not ask again")
	}
	for n := range 3 * mostCallers {
		now = now.Add(time.Millisecond)
		r.allow(fmt.Sprintf("10.0.%d.%d:1000", n>>8, n&255))
		if len(r.of) > mostCallers {
			t.Fatalf("%d addresses are kept", len(r.of))
		}
	}
}
