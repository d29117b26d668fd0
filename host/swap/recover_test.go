// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// TestSaved goes through JSON and back, and takes no name that leads to another file.
func TestSaved(t *testing.T) {
	if m, err := (Machine{}).Saved().Machine(); err != nil || m != (Machine{}) {
		t.Errorf("of nothing: %+v, %v", m, err)
	}
	want := Machine{Stage: Draining, Plan: toUserspace.back(), Began: time.Unix(7, 0).UTC(), Undo: "no luck", Back: true}
	data, err := json.Marshal(want.Saved())
	if err != nil {
		t.Fatal(err)
	}
	var s Saved
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Machine(); err != nil || got != want {
		t.Errorf("read as %+v, %v, want %+v", got, err, want)
	}
	for _, text := range []string{
		`{"stage":"flying","plan":{"from":"a","to":"b"}}`,
		`{"stage":"draining","plan":{"from":"a","to":"../b"}}`,
		`{"stage":"draining","plan":{"from":"","to":"b"}}`,
		`{"stage":"draining","plan":{"from":"a","to":"b","toSlot":"/../x"}}`,
	} {
		s = Saved{}
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if m, err := s.Machine(); err == nil {
			t.Errorf("%s is %+v", text, m)
		}
	}
}

// TestClockSet has the clock of the wall set, by an hour to either side, while no host
// runs: a swap that is found takes its time from then on.
func TestClockSet(t *testing.T) {
	began := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		m := Machine{Stage: Draining, Plan: toUserspace, Began: began, Since: began}
		now := began.Add(by)
		m, _ = Recover(m, now)
		if next, work := m.Step(Event{Kind: Tick}, now.Add(toUserspace.Drain-1)); next.Stage != Draining || work != nil {
			t.Errorf("set by %s: it drains no more: %s", by, describe(next, work))
		}
		m, _ = m.Step(Event{Kind: Tick}, now.Add(toUserspace.Drain))
		m, _ = m.Step(Event{Kind: Passed, Stage: Clearing}, now.Add(toUserspace.Drain))
		if m.Stage != Idle || m.Last.Took < 0 {
			t.Errorf("set by %s: it ended in %s with %+v", by, m.Stage, m.Last)
		}
	}
}

// TestRecover finishes what had passed its canary, and undoes all else.
func TestRecover(t *testing.T) {
	for stage, want := range map[Stage]string{
		Idle:      "→ idle",
		Staging:   "userspace→iptables draining: note await drain",
		Holding:   "userspace→iptables draining: note await drain",
		Cutting:   "iptables→userspace returning: note restore recall",
		Proving:   "iptables→userspace returning: note restore recall",
		Draining:  "iptables→userspace draining: note await drain",
		Clearing:  "iptables→userspace draining: note await drain",
		Returning: "iptables→userspace returning: note restore recall",
	} {
		m := Machine{Stage: stage}
		if stage != Idle {
			m.Plan = toUserspace
		}
		next, work := Recover(m, time.Unix(0, 0))
		if got := describe(next, work); got != want {
			t.Errorf("%s: %s, want %s", stage, got, want)
		}
		keeps, leaves := Party{"iptables", "b"}, Party{"userspace", "c"}
		if stage == Draining || stage == Clearing {
			keeps, leaves = leaves, keeps
		}
		m.Plan.FromSlot, m.Plan.ToSlot = "b", "c"
		if k, l := m.Parties(); stage != Idle && (k != keeps || l != leaves) {
			t.Errorf("%s: keeps %+v, and %+v leaves", stage, k, l)
		}
		back := m.reversed()
		if k, l := back.Parties(); stage == Draining && (k != leaves || l != keeps) {
			t.Errorf("%s, to undo it: keeps %+v, and %+v leaves", stage, k, l)
		}
	}
}

// TestClockSetMeanwhile holds a swap to instants that the wall's clock has no part in, so
// setting it ends no stage, and no drain.
func TestClockSetMeanwhile(t *testing.T) {
	m, _ := Machine{}.Step(Event{Kind: Ask, Plan: toUserspace}, time.Now())
	for m.Stage != Idle {
		m, _ = m.Step(Event{Kind: Progressed}, time.Now())
		if m.Stage == Clearing {
			m, _ = m.Step(Event{Kind: Failed, Stage: Clearing}, time.Now())
		}
		for what, at := range map[string]time.Time{"Since": m.Since, "Moved": m.Moved, "Began": m.Began, "Next": m.Next} {
			if !at.IsZero() && !strings.Contains(at.String(), " m=") {
				t.Errorf("in %s, %s is by the wall's clock alone: %s", m.Stage, what, at)
			}
		}
		m, _ = m.Step(Event{Kind: Passed, Stage: m.Stage}, time.Now())
	}
}
