// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"net/http"
	"strconv"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
)

// Show is which dataplane serves, and what becomes of it.
func (set *Set) Show() admin.Mode {
	m := set.runner.Machine()
	mode := admin.Mode{Mode: set.Mode(), File: set.Now().Mode}
	if wanted := set.intent.Intent().Wanted(); wanted != mode.File {
		mode.Asked = wanted
	}
	mode.Swap, mode.Last = set.underWay(m), swapped(m.Last)
	return mode
}

// UnderWay is the swap that goes on; nil: none does.
func (set *Set) UnderWay() *admin.Swap { return set.underWay(set.runner.Machine()) }

func (set *Set) underWay(m swap.Machine) *admin.Swap {
	if m.Stage == swap.Idle {
		return nil
	}
	s := &admin.Swap{From: m.Plan.From, To: m.Plan.To, Why: m.Plan.Why, Stage: m.Stage.String(), Since: m.Since, Began: m.Began, Undo: m.Undo}
	if m.Stage == swap.Draining {
		s.Until = m.Since.Add(m.Plan.Drain)
		if leaves := set.besides(); leaves != nil {
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

// LastSwap is the last swap, if it still is one to speak of: one that was undone
// and is still wanted, or was not long ago. One that was undone because that was asked for is not.
// That a mode has another binary since is not to speak of, while a change of mode that was
// undone is.
func (set *Set) LastSwap() *admin.Swapped {
	newest := set.runner.Machine().Last
	if newest.Plan.Same && newest.OK() {
		if undone := set.toSpeakOf(set.intent.Intent().Undone); undone != nil {
			return undone
		}
	}
	return set.toSpeakOf(newest)
}

func (set *Set) toSpeakOf(o swap.Outcome) *admin.Swapped {
	last := swapped(o)
	if last != nil && last.Error == intent.ByReset && last.Left == "" {
		return nil
	}
	if last == nil || last.Error == "" || time.Since(last.At) < Recently {
		return last
	}
	if set.Mode() == set.intent.Intent().Wanted() {
		return nil
	}
	return last
}

// SwapTo begins a swap that is asked for. It holds, also for hosts to come,
// until the file's mode changes or another is asked for.
func (set *Set) SwapTo(mode string, force bool) error {
	if err := set.possible(mode); err != nil {
		return err
	}
	set.cleared()
	if err := set.ask(mode, "pointsman mode swap", force); err != nil {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode, Why: err.Error(), Try: "pointsman mode show"}
	}
	set.prefer(mode)
	return nil
}

// cleared waits for the end of a swap that has nothing to do any more but to clear away,
// unless that takes long.
func (set *Set) cleared() {
	late := time.After(clearedSoon)
	for {
		changed := set.changes.wait()
		if set.runner.Machine().Stage != swap.Clearing {
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
func (set *Set) prefer(mode string) {
	set.change(func(i intent.Intent) intent.Intent { return i.Ask(mode) })
}

// possible refuses a swap to a mode that has no plugin, or to the very process that serves:
// beside a plugin that runs by itself there is no second one.
func (set *Set) possible(mode string) error {
	if !supervise.ValidName(mode) {
		return &admin.Error{Code: http.StatusBadRequest, What: "swap to " + strconv.Quote(mode), Why: "no dataplane can be called so: want lower-case letters, digits and -", Try: "pointsman plugin list"}
	}
	if !set.available(mode) {
		return &admin.Error{Code: http.StatusNotFound, What: "swap to " + mode, Why: missing(set.Now(), mode), Try: "pointsman plugin list"}
	}
	if address := set.Now().Plugins[mode].Address; address != "" && set.serving().name == mode {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode,
			Why: "it serves, and runs by itself at " + address + ": what keeps it running puts another in its place", Try: "pointsman plugin restart " + mode}
	}
	return nil
}

// Reset undoes a swap that has not passed its canary, else it goes back to the
// file's mode.
func (set *Set) Reset() (string, error) {
	if m := set.runner.Machine(); m.Stage != swap.Idle && m.Stage < swap.Draining {
		set.runner.Reset(intent.ByReset)
		set.prefer(set.serving().name) // or the next host would begin it again
		return "the swap to " + m.Plan.To + " is undone", nil
	}
	mode := set.Now().Mode
	if set.serving().name == mode {
		set.prefer(mode)
		return "the mode is " + mode + ", as in the config file", nil
	}
	return "the swap to " + mode + " begins", set.SwapTo(mode, false)
}
