// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/intent"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
)

// Mode returns the one that serves.
func (set *Set) Mode() string { return set.serving().name }

// Show returns which dataplane serves, and what becomes of it.
func (set *Set) Show() admin.Mode {
	mode := admin.Mode{Mode: set.Mode(), File: set.Now().Mode, Auto: set.Auto(), Swap: set.UnderWay(), Last: swapped(set.runner.Machine().Last)}
	i := set.intent.Intent()
	if mode.Wanted, mode.Left = i.Wanted(), i.Left; i.Wanted() != i.FileMode {
		mode.Asked = i.Wanted()
	}
	if retry := i.Retry(); mode.Last != nil && mode.Last.Error != "" && retry.To == mode.Last.To {
		mode.Last.Again = retry.At
	}
	return mode
}

// UnderWay returns the swap that goes on; nil: none does.
func (set *Set) UnderWay() *admin.Swap {
	now := set.runner.Machine()
	if now.Stage == swap.Idle {
		return nil
	}
	s := &admin.Swap{From: now.Plan.From, To: now.Plan.To, Why: now.Plan.Why, Stage: now.Stage.String(), Since: now.Since, Began: now.Began, Undo: now.Undo}
	if now.Stage == swap.Draining {
		s.Until = now.Since.Add(now.Plan.Drain)
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
	s := &admin.Swapped{From: o.Plan.From, To: o.Plan.To, At: o.At, Seconds: o.Took.Seconds(), Error: oneLine(o.Err), Left: oneLine(o.Left), Stays: o.Stays, Undone: o.Undone, DryRun: o.Plan.DryRun}
	if o.Err == swap.ByDryRun {
		s.Error = ""
	}
	return s
}

// Recently is how long a swap that was undone, or a restart of the plugin, is worth a
// warning.
const Recently = 10 * time.Minute

// LastSwap returns the last swap, if it still is one to speak of: one that was undone
// and is still wanted, or was not long ago. One that was undone because that was asked for is not.
// That a mode has another binary since is not to speak of, while a change of mode that was
// undone is.
func (set *Set) LastSwap() *admin.Swapped {
	newest := set.runner.Machine().Last
	if newest.Plan.Same && newest.OK() || newest.Plan.DryRun {
		if undone := set.toSpeakOf(set.intent.Intent().Undone); undone != nil {
			return undone
		}
	}
	return set.toSpeakOf(newest)
}

func (set *Set) toSpeakOf(o swap.Outcome) *admin.Swapped {
	last := swapped(o)
	tried := set.runner.Machine().Stage != swap.Idle // it is being tried, or another one is
	if retry := set.intent.Intent().Retry(); last != nil && last.Error != "" && retry.To == last.To && !o.Plan.Same && !tried {
		last.Again = retry.At
	}
	if last != nil && (last.Error == intent.ByReset || last.Error == intent.ByOther || o.Plan.DryRun) && last.Left == "" {
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

// SwapTo begins a swap that is asked for, and says what it does. While another swap is under way this one waits for the
// end of that, which is undone if traffic was not switched yet and it leads elsewhere. What is asked for holds, also for
// hosts to come, until the file's mode changes or another is asked for. A dry run holds nothing.
func (set *Set) SwapTo(a admin.SwapAsk) (string, error) {
	mode := a.To
	if err := set.possible(mode); err != nil {
		return "", err
	}
	apart := set.isServingApart(mode)
	if apart && a.DryRun {
		return "", &admin.Error{Code: http.StatusConflict, What: "dry run of a swap to " + mode, Why: "it serves, and something else runs its plugin, beside which there is no second one", Try: "pointsman mode show"}
	}
	if main := set.serving(); a.DryRun && !main.serves() {
		return "", &admin.Error{Code: http.StatusConflict, What: "dry run of a swap to " + mode, Why: main.name + " does not serve, and the rules of " + mode + " may be those that serve, which it would write", Try: "pointsman status"}
	}
	if a.DryRun {
		set.cleared()
	}
	var err error
	if !apart { // else another mode was wanted, or is on its way, and is not wanted any more
		err = set.ask(a, "pointsman mode swap")
	}
	switch {
	case apart, errors.Is(err, swap.ErrBusy) && !a.DryRun:
		set.change(func(i intent.Intent) intent.Intent { return i.AskNext(mode, a.Force) })
		set.changes.notify()
		if set.Mode() == mode {
			return mode + " serves, and is the wanted mode again; pointsman mode show says what becomes of a swap that is under way", nil
		}
		return "the swap to " + mode + " begins after the one that is under way; pointsman mode show says how far it is", nil
	case err != nil:
		return "", &admin.Error{Code: http.StatusConflict, What: "swap to " + mode, Why: err.Error(), Try: "pointsman mode show"}
	case !a.DryRun:
		set.prefer(mode)
	}
	return "the swap to " + mode + " begins", nil
}

// ask begins a swap.
func (set *Set) ask(a admin.SwapAsk, why string) error {
	mode, main, s := a.To, set.serving(), set.Now()
	p := swap.Plan{
		From: main.name, To: mode, Same: main.name == mode, Why: why, Force: a.Force, DryRun: a.DryRun,
		Drain: s.Swap.DrainTimeout.Duration, FromSlot: main.slot,
		FromDown: main.name != mode && !main.serves(),
	}
	if p.Same {
		p.ToSlot = otherSlot(main.slot)
		p.Overlap = diesWithProcess(main.status().Description)
	}
	return set.runner.Ask(p)
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
	set.changes.notify()
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
	rests := set.runner.Machine().Stage == swap.Idle && set.intent.Intent().Wanted() == mode
	if address := set.Now().Plugins[mode].Address; set.isServingApart(mode) && rests {
		return &admin.Error{Code: http.StatusConflict, What: "swap to " + mode,
			Why: "it serves, and runs by itself at " + address + ": what keeps it running puts another in its place", Try: "pointsman plugin restart " + mode}
	}
	return nil
}

// isServingApart reports whether a mode serves by a plugin that something else runs, beside which there is no second one.
func (set *Set) isServingApart(mode string) bool {
	return set.Mode() == mode && set.Now().Plugins[mode].Address != ""
}

// Reset undoes a swap that has not passed its canary, else it goes back to the
// file's mode.
func (set *Set) Reset() (string, error) {
	if now := set.runner.Machine(); now.Stage != swap.Idle && now.Stage < swap.Draining {
		set.runner.Reset(intent.ByReset)
		set.prefer(set.Mode()) // or the next host would begin it again
		return "the swap to " + now.Plan.To + " is undone", nil
	}
	mode := set.intent.Intent().FileMode
	if set.Mode() == mode {
		set.prefer(mode)
		return "the mode is " + mode + ", as in the config file", nil
	}
	return set.SwapTo(admin.SwapAsk{To: mode})
}

// otherSlot is that of a second process of one mode.
func otherSlot(slot string) string {
	if slot == "" {
		return "b"
	}
	return ""
}
