// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"testing"
	"time"
)

// TestFallback runs the binary that has proved itself when the new one fails too
// often, and the new one again when it changes.
func TestFallback(t *testing.T) {
	m := Machine{Good: true}
	now := time.Unix(0, 0)
	m, _ = m.Step(Event{Kind: Begin}, now, most)
	for range tooOften - 1 {
		m, _ = m.Step(Event{Kind: Failed}, now, most)
		now = m.Next
		m, _ = m.Step(Event{Kind: Tick}, now, most)
	}
	m, actions := m.Step(Event{Kind: Failed}, now, most)
	if !m.Fallback || describe(m, actions, now) != "starting launch" {
		t.Fatalf("after %d failures: %s, fallback %t", tooOften, describe(m, actions, now), m.Fallback)
	}
	up, _ := m.Step(Event{Kind: Launched}, now, most)
	if up, _ = up.Step(Event{Kind: Restart}, now, most); up.Fallback {
		t.Error("someone wants it started anew, and it is not the one that is installed")
	}
	for range tooOften {
		m, _ = m.Step(Event{Kind: Failed}, now, most)
		if m.State == Waiting {
			now = m.Next
			m, _ = m.Step(Event{Kind: Tick}, now, most)
		}
	}
	if m.State != Quarantined {
		t.Fatalf("the other binary fails too, and it is %s", m.State)
	}
	if m, _ = m.Step(Event{Kind: Changed}, now, most); m.Fallback || m.State != Starting {
		t.Errorf("the binary changed, and it is %s, fallback %t", m.State, m.Fallback)
	}
}

// TestFallbackIsNotTried has the binary that proved itself serve at once, when the new one
// fails on trial.
func TestFallbackIsNotTried(t *testing.T) {
	m := Machine{State: Quarantined, Trips: 1}
	now := time.Unix(0, 0)
	for _, e := range []EventKind{Tick, Failed, Launched} {
		m.Good = e == Failed
		m, _ = m.Step(Event{Kind: e}, now, most)
	}
	if !m.Fallback || m.State != Serving {
		t.Errorf("it is %s, fallback %t", m.State, m.Fallback)
	}
}
