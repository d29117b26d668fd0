// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/swap"
)

// Modes are the modes of a host: which one serves, what a change to another would come to,
// and the verbs that ask for one.
type Modes struct {
	installed
	*group
	*record
	runner *swap.Runner
}

func newModes(s Settings) *Modes {
	g := &group{}
	return &Modes{installed: installed{s}, group: g, record: &record{group: g, reports: s.Reports}}
}

// Mode returns the one that serves.
func (m *Modes) Mode() string { return m.serving().name }

// Show returns which dataplane serves, and what becomes of it.
func (m *Modes) Show() admin.Mode {
	mode := admin.Mode{Mode: m.Mode(), File: m.Now().Mode, Swap: m.UnderWay(), Last: swapped(m.runner.Machine().Last)}
	if wanted := m.intent.Intent().Wanted(); wanted != mode.File {
		mode.Asked = wanted
	}
	return mode
}

// UnderWay returns the swap that goes on; nil: none does.
func (m *Modes) UnderWay() *admin.Swap {
	now := m.runner.Machine()
	if now.Stage == swap.Idle {
		return nil
	}
	s := &admin.Swap{From: now.Plan.From, To: now.Plan.To, Why: now.Plan.Why, Stage: now.Stage.String(), Since: now.Since, Began: now.Began, Undo: now.Undo}
	if now.Stage == swap.Draining {
		s.Until = now.Since.Add(now.Plan.Drain)
		if leaves := m.besides(); leaves != nil {
			s.Flows = leaves.status().Vitals.Flows
		}
	}
	return s
}

func swapped(o swap.Outcome) *admin.Swapped {
	if o.At.IsZero() {
		return nil
	}
	return &admin.Swapped{From: o.Plan.From, To: o.Plan.To, At: o.At, Seconds: o.Took.Seconds(), Error: oneLine(o.Err), Left: oneLine(o.Left), Stays: o.Stays}
}

// Recently is how long a swap that was undone, or a restart of the plugin, is worth a
// warning.
const Recently = 10 * time.Minute

// LastSwap returns the last swap, if it still is one to speak of: one that was undone
// and is still wanted, or was not long ago. One that was undone because that was asked for is not.
// That a mode has another binary since is not to speak of, while a change of mode that was
// undone is.
func (m *Modes) LastSwap() *admin.Swapped {
	newest := m.runner.Machine().Last
	if newest.Plan.Same && newest.OK() {
		if undone := m.toSpeakOf(m.intent.Intent().Undone); undone != nil {
			return undone
		}
	}
	return m.toSpeakOf(newest)
}

func (m *Modes) toSpeakOf(o swap.Outcome) *admin.Swapped {
	last := swapped(o)
	if last != nil && last.Error == intent.ByReset && last.Left == "" {
		return nil
	}
	if last == nil || last.Error == "" || time.Since(last.At) < Recently {
		return last
	}
	if m.Mode() == m.intent.Intent().Wanted() {
		return nil
	}
	return last
}
