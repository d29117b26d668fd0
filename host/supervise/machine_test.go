// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"strings"
	"testing"
	"time"
)

// most is a jitter that always waits as long as it may.
func most(d time.Duration) time.Duration { return d }

// TestLives tells lives of plugins: events with the time since the one before,
// and what they lead to.
func TestLives(t *testing.T) {
	type step struct {
		after time.Duration
		kind  EventKind
		want  string // state, then actions
	}
	const second = time.Second
	for name, life := range map[string][]step{
		"comes up and is told to end": {
			{0, Begin, "starting launch"},
			{second, Launched, "serving"},
			{second, Beat, "serving"},
			{second, End, "stopped stop"},
			{second, Tick, "stopped"},
		},
		"dies young, and waits longer each time": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{second, Exited, "waiting 100ms"},
			{99 * time.Millisecond, Tick, "waiting 1ms"},
			{time.Millisecond, Tick, "starting launch"},
			{0, Failed, "waiting 200ms"},
			{200 * time.Millisecond, Tick, "starting launch"},
			{0, Failed, "waiting 400ms"},
			{400 * time.Millisecond, Tick, "starting launch"},
			{0, Launched, "serving"},
			{2 * second, Exited, "waiting 800ms"},
		},
		"is hindered by the host, which counts for nothing": {
			{0, Begin, "starting launch"},
			{0, Failed, "waiting 100ms"},
			{second, Tick, "starting launch"},
			{0, Hindered, "waiting 1s"},
			{second, Tick, "starting launch"},
			{0, Hindered, "waiting 1s"},
			{second, Tick, "starting launch"},
			{0, Hindered, "waiting 1s"},
			{second, Tick, "starting launch"},
			{0, Hindered, "waiting 1s"},
			{second, Tick, "starting launch"},
			{0, Hindered, "waiting 1s"},
			{second, Tick, "starting launch"},
			{0, Failed, "waiting 200ms"},
		},
		"served for long, and is missed at once": {
			{0, Begin, "starting launch"},
			{0, Failed, "waiting 100ms"},
			{second, Tick, "starting launch"},
			{0, Launched, "serving"},
			{longLife, Exited, "starting launch"},
			{0, Failed, "waiting 100ms"},
		},
		"misses its beats and answers after all": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{second, Missed, "suspect"},
			{second, Beat, "serving"},
			{second, Exited, "waiting 100ms"}, // its life was short all the same
		},
		"cannot answer, as nothing runs in time": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{2 * second, Starved, "serving"},
			{2 * second, Starved, "serving"},
			{2 * second, Missed, "suspect"},
			{2 * second, Starved, "serving"},
			{2 * second, Missed, "suspect"},
			{2 * second, Missed, "waiting 100ms kill"},
		},
		"misses its beats and is killed": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{second, Missed, "suspect"},
			{suspectLimit, Tick, "waiting 100ms kill"},
		},
		"misses two beats": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{2 * second, Missed, "suspect"},
			{2 * second, Missed, "waiting 100ms kill"},
		},
		"fails again and again, until it is replaced": {
			{0, Begin, "starting launch"},
			{0, Failed, "waiting 100ms"},
			{second, Tick, "starting launch"},
			{0, Failed, "waiting 200ms"},
			{second, Tick, "starting launch"},
			{0, Launched, "serving"},
			{second, Exited, "waiting 400ms"},
			{second, Tick, "starting launch"},
			{0, Failed, "waiting 800ms"},
			{second, Tick, "starting launch"},
			{0, Launched, "serving"},
			{second, Hung, "waiting 1.6s kill"},
			{2 * second, Tick, "starting launch"},
			{0, Failed, "waiting 3.2s"},
			{second, Changed, "starting launch"},
			{0, Launched, "serving"},
			{second, Hung, "waiting 100ms kill"},
			{second, Tick, "starting launch"},
			{0, Launched, "serving"},
			{longLife, Beat, "serving"},
			{0, Failed, "waiting 100ms stop"},
		},
		"answers, and dies young again": {
			{0, Begin, "starting launch"},
			{0, Failed, "waiting 100ms"},
			{second, Tick, "starting launch"},
			{0, Launched, "serving"},
			{second, Beat, "serving"},
			{second, Exited, "waiting 200ms"}, // one answer forgives nothing
		},
		"fails, and is replaced": {
			{0, Begin, "starting launch"},
			{0, Failed, "waiting 100ms"},
			{second, Tick, "starting launch"},
			{0, Failed, "waiting 200ms"},
			{0, Changed, "starting launch"},
			{0, Failed, "waiting 100ms"},
		},
		"hangs in a call": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{second, Hung, "waiting 100ms kill"},
		},
		"never comes up": {
			{0, Begin, "starting launch"},
			{startLimit - 1, Tick, "starting"},
			{1, Tick, "waiting 100ms kill"},
		},
		"refuses until its binary changes": {
			{0, Begin, "starting launch"},
			{0, Refuses, "refused 1m0s"},
			{second, Exited, "refused 59s"},
			{second, Changed, "starting launch"},
		},
		"refuses, and is asked again after a while": {
			{0, Begin, "starting launch"},
			{0, Refuses, "refused 1m0s"},
			{refusedRetry, Tick, "starting launch"},
		},
		"is taken over by another host": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{second, Refuses, "refused 1h0m0s stop"},
		},
		"is taken over while it is suspect": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{second, Missed, "suspect"},
			{second, Refuses, "refused 1h0m0s stop"},
		},
		"is restarted by someone": {
			{0, Begin, "starting launch"},
			{second, Restart, "starting"},
			{0, Launched, "serving"},
			{second, Restart, "starting stop launch"},
			{0, Failed, "waiting 100ms"},
			{0, Restart, "starting launch"},
		},
		"loses its session": {
			{0, Begin, "starting launch"},
			{0, Launched, "serving"},
			{0, Failed, "waiting 100ms stop"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var m Machine
			now := time.Unix(0, 0)
			for i, s := range life {
				now = now.Add(s.after)
				var actions []Action
				m, actions = m.Step(Event{Kind: s.kind}, now, most)
				if got := describe(m, actions, now); got != s.want {
					t.Fatalf("step %d: %s, want %s", i+1, got, s.want)
				}
			}
		})
	}
}

// TestJitter has plugins of many nodes, which fail together, come back apart.
func TestJitter(t *testing.T) {
	now := time.Unix(0, 0)
	var m Machine
	m, _ = m.Step(Event{Kind: Begin}, now, most)
	m, _ = m.Step(Event{Kind: Failed}, now, func(d time.Duration) time.Duration { return d / 4 })
	if got := m.Next.Sub(now); got != firstBackoff/4 {
		t.Errorf("it waits %s, want %s", got, firstBackoff/4)
	}
}

// TestWaitsNoLonger has a plugin that fails again and again wait longer each time, up to a limit.
func TestWaitsNoLonger(t *testing.T) {
	now := time.Unix(0, 0)
	wait := firstBackoff
	for n := range 40 {
		m, _ := Machine{State: Starting, Failures: n}.Step(Event{Kind: Failed}, now, most)
		if got := m.Next.Sub(now); m.State != Waiting || got != wait {
			t.Errorf("after %d failures: %s for %s, want %s", n, m.State, got, wait)
		}
		wait = min(2*wait, lastBackoff)
	}
}

func describe(m Machine, actions []Action, now time.Time) string {
	words := []string{m.State.String()}
	if !m.Next.IsZero() {
		words = append(words, m.Next.Sub(now).String())
	}
	for _, a := range actions {
		words = append(words, [...]string{Launch: "launch", Kill: "kill", Stop: "stop"}[a])
	}
	return strings.Join(words, " ")
}
