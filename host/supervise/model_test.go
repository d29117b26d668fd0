// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestAnyLife leads machines through events in any order and watches what a
// supervisor relies on.
func TestAnyLife(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		m := Machine{Spared: seed%3 == 0}
		now := time.Unix(0, 0)
		processes := 0 // that run, or are being started
		for range 300 {
			now = now.Add(time.Duration(r.Int64N(int64(10 * time.Second))))
			e := Event{Kind: EventKind(r.IntN(int(End))), Why: "why"} // anything but End
			if m.State == Starting && e.Kind == Exited {
				continue // a process that did not come up is reported by Failed
			}
			before := m
			var actions []Action
			m, actions = m.Step(e, now, func(d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d) + 1)) })
			if gone(before, e) {
				processes--
			}
			for _, a := range actions {
				switch a {
				case Launch:
					processes++
				case Kill, Stop:
					processes--
				}
			}
			if err := check(before, m, e, actions, processes, now); err != nil {
				t.Fatalf("seed %d: %v\nbefore %+v\nevent %+v\nafter  %+v", seed, err, before, e, m)
			}
		}
	}
}

// gone reports whether e says that the process has ended by itself.
func gone(m Machine, e Event) bool {
	switch m.State {
	case Starting:
		return e.Kind == Failed || e.Kind == Refuses || e.Kind == Hindered
	case Serving, Suspect:
		return e.Kind == Exited
	}
	return false
}

func check(before, m Machine, e Event, actions []Action, processes int, now time.Time) error {
	running := m.State == Starting || m.State == Serving || m.State == Suspect
	switch {
	case processes < 0 || processes > 1:
		return fmt.Errorf("%d processes", processes)
	case running != (processes == 1):
		return fmt.Errorf("%s with %d processes", m.State, processes)
	case m.State == Waiting && (m.Next.IsZero() || m.Next.Sub(now) > lastBackoff):
		return fmt.Errorf("waits until %s", m.Next)
	case m.State == Refused && m.Next.IsZero():
		return fmt.Errorf("is refused for ever")
	case m.State == Stopped && before.State != Stopped:
		return fmt.Errorf("stopped without being told to")
	case m.Spared && slices.Contains(actions, Kill) && before.State != Starting:
		return fmt.Errorf("one that is spared was killed")
	case m.Launches < before.Launches:
		return fmt.Errorf("forgot a launch")
	case slices.Contains(actions, Kill) && m.State != Waiting:
		return fmt.Errorf("killed, and then %s", m.State)
	}
	return leavesByTime(m, now)
}

// leavesByTime checks that no state but Serving and Stopped lasts by itself, and that of a process which
// hangs and is spared.
func leavesByTime(m Machine, now time.Time) error {
	if m.State == Serving || m.State == Stopped || m.Spared && m.State == Suspect {
		return nil
	}
	later, _ := m.Step(Event{Kind: Tick}, now.Add(yieldFor), most)
	if later.State == m.State && later.Launches == m.Launches {
		return fmt.Errorf("%s does not end by time", m.State)
	}
	return nil
}
