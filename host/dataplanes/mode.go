// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"net/http"
	"strconv"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/host/supervise"
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

// SwapTo begins a swap that is asked for. It holds, also for hosts to come,
// until the file's mode changes or another is asked for.
func (m *Modes) SwapTo(mode string, force bool) error {
	if err := m.possible(mode); err != nil {
		return err
	}
	m.cleared()
	if err := m.ask(mode, "pointsman mode swap", force); err != nil {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode, Why: err.Error(), Try: "pointsman mode show"}
	}
	m.prefer(mode)
	return nil
}

// ask begins a swap to mode.
func (m *Modes) ask(mode, why string, force bool) error {
	main, s := m.serving(), m.Now()
	p := swap.Plan{
		From: main.name, To: mode, Same: main.name == mode, Why: why, Force: force,
		Drain: s.Swap.DrainTimeout, Stay: s.Swap.OnFailure == "stay", FromSlot: main.slot,
		FromDown: main.name != mode && !main.serves(),
	}
	if p.Same {
		p.ToSlot = otherSlot(main.slot)
		p.Overlap = diesWithProcess(main.status().Description)
	}
	err := m.runner.Ask(p)
	if err != nil {
		m.Reports.Report(report.Event{Warning: true, Reason: report.SwapNote, Object: mode, Message: err.Error()})
	}
	return err
}

// cleared waits for the end of a swap that has nothing to do any more but to clear away,
// unless that takes long.
func (m *Modes) cleared() {
	late := time.After(clearedSoon)
	for {
		changed := m.changes.wait()
		if m.runner.Machine().Stage != swap.Clearing {
			return
		}
		select {
		case <-changed:
		case <-late:
			return
		}
	}
}

const clearedSoon = 10 * time.Second

// prefer notes what was asked for.
func (m *Modes) prefer(mode string) {
	m.change(func(i intent.Intent) intent.Intent { return i.Ask(mode) })
	m.changes.notify()
}

// possible refuses a swap to a mode that has no plugin, or to the very process that serves:
// beside a plugin that runs by itself there is no second one.
func (m *Modes) possible(mode string) error {
	if !supervise.ValidName(mode) {
		return &admin.Error{Code: http.StatusBadRequest, What: "swap to " + strconv.Quote(mode), Why: "no dataplane can be called so: want lower-case letters, digits and -", Try: "pointsman plugin list"}
	}
	if !m.available(mode) {
		return &admin.Error{Code: http.StatusNotFound, What: "swap to " + mode, Why: missing(m.Now(), mode), Try: "pointsman plugin list"}
	}
	if address := m.Now().Plugins[mode].Address; address != "" && m.Mode() == mode {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode,
			Why: "it serves, and runs by itself at " + address + ": what keeps it running puts another in its place", Try: "pointsman plugin restart " + mode}
	}
	return nil
}

// Reset undoes a swap that has not passed its canary, else it goes back to the
// file's mode.
func (m *Modes) Reset() (string, error) {
	if now := m.runner.Machine(); now.Stage != swap.Idle && now.Stage < swap.Draining {
		m.runner.Reset(intent.ByReset)
		m.prefer(m.Mode()) // or the next host would begin it again
		return "the swap to " + now.Plan.To + " is undone", nil
	}
	mode := m.Now().Mode
	if m.Mode() == mode {
		m.prefer(mode)
		return "the mode is " + mode + ", as in the config file", nil
	}
	return "the swap to " + mode + " begins", m.SwapTo(mode, false)
}

// otherSlot is that of a second process of one mode.
func otherSlot(slot string) string {
	if slot == "" {
		return "b"
	}
	return ""
}
