// SPDX-License-Identifier: Apache-2.0

/*
Package intent decides what a host does about modes: which one serves, which one is asked
for, which change is under way, and what an earlier change has left to clean up.

An Intent is a value, and decides: Next says from what the host sees which change of mode to
begin. What the next host must know of it is Saved, in one file; a Store keeps both.

	config file ─▶ FileSays ─┐            ┌─▶ Next: change to a mode, or clean one up
	mode swap ───▶ Ask ──────┼─▶ Intent ──┤
	swap.Machine ▶ Record ───┘            └─▶ Saved ─▶ mode.json ─▶ the next host
*/
package intent

import (
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/swap"
)

// An Intent is what a host means to do about modes. Its methods return the next one.
type Intent struct {
	Saved
	FileMode string       // the config file's mode
	Undone   swap.Outcome // of the last change of mode, where it was undone; zero: it was made

	due       string // the mode to change to as soon as nothing is in the way; empty: none
	force     bool   // of that change: also if Services or connections are lost by it
	beginning bool   // the wanted mode becomes due once the first dataplane is up, or does not come up
	retry     Retry
	cleanNext time.Time // when what an earlier change left may be cleaned up
}

// A Retry is a change of mode to try again: the mode that serves does not serve either, or the
// machine was too busy for the change.
type Retry struct {
	To    string // empty: none
	At    time.Time
	tries int
}

const (
	retryFirst = 2 * time.Second  // after a change that was undone while From did not serve
	retryBusy  = 10 * time.Second // and while it did, but updates were held back for too long
	retryMost  = 5 * time.Minute  // each doubles up to this
	busyTries  = 5                // each of those holds updates back again
)

// Why a change is undone that is not wanted any more.
const (
	ByReset = "pointsman mode reset"
	ByOther = "another mode was asked for"
)

// Begin returns the intent of a host that finds what was saved, while the config file says mode.
func Begin(saved Saved, mode string) Intent {
	return Intent{Saved: saved.under(mode), FileMode: mode, beginning: true}
}

// Wanted returns the mode to serve with. What was asked for holds until the file says another
// mode than it did then.
func (i Intent) Wanted() string { return i.wanted(i.FileMode) }

// Why says what asked for the wanted mode.
func (i Intent) Why() string {
	if i.Asked != "" {
		return "pointsman mode swap"
	}
	return "the mode in the config file"
}

// Retry returns the change of mode that is to be tried again, for as long as that is wanted.
func (i Intent) Retry() Retry {
	if i.retry.To != i.Wanted() {
		return Retry{}
	}
	return i.retry
}

// FileSays notes the mode of the config file, after that has changed. It takes the place
// of what was asked for.
func (i Intent) FileSays(mode string) Intent {
	i.Saved, i.FileMode = i.under(mode), mode
	i.due, i.force, i.beginning = mode, false, false
	return i
}

// Ask notes that a mode was asked for. It holds, also for hosts to come, until the file
// says another mode or another one is asked for.
func (i Intent) Ask(mode string) Intent {
	i.Asked, i.File = mode, i.FileMode
	if mode == i.FileMode {
		i.Asked, i.File = "", ""
	}
	i.due, i.force, i.beginning = "", false, false
	return i
}

// AskNext notes that a mode was asked for while another change is under way. The change to it begins as soon as it can.
func (i Intent) AskNext(mode string, force bool) Intent {
	i = i.Ask(mode)
	i.due, i.force = mode, force
	return i
}

// Serves notes which process of which mode serves: the next host begins with it.
func (i Intent) Serves(mode, slot string) Intent {
	i.Serving, i.Slot = mode, slot
	i.Left = without(i.Left, mode)
	return i
}

// Record notes where a change of mode stands. From the canary on, it is decided which
// process serves.
func (i Intent) Record(m swap.Machine) Intent {
	i.Swap = m.Saved()
	if m.Stage == swap.Draining || m.Stage == swap.Clearing {
		keeps, _ := m.Parties()
		return i.Serves(keeps.Mode, keeps.Slot)
	}
	return i
}

// Ended notes that a change of mode has ended, and which process serves now. What was
// recorded of it is forgotten.
func (i Intent) Ended(o swap.Outcome, mode, slot string, now time.Time) Intent {
	i.Swap = nil
	i.retry = i.retry.after(o, now)
	if i.retry.To != "" && i.due == i.retry.To {
		i.due = "" // it was just tried, because a user asked for the same
	}
	if !o.Plan.Same {
		if !o.Plan.DryRun {
			i.Undone = swap.Outcome{}
			if o.Err != "" {
				i.Undone = o
			}
		}
		gone := o.Plan.From
		if o.Stays == gone {
			gone = o.Plan.To
		}
		i.Left = without(i.Left, gone)
		if o.Remains != "" {
			i.Left = append(i.Left, o.Remains)
		}
	}
	return i.Serves(mode, slot)
}

// after returns the retry that follows from the end of a change.
func (r Retry) after(o swap.Outcome, now time.Time) Retry {
	if o.Plan.Same || o.Plan.DryRun {
		return r // that is no change of mode
	}
	if !o.Plan.FromDown && !o.Busy || o.Err == "" || o.Err == ByReset || o.Err == ByOther || o.Stays == o.Plan.To {
		return Retry{}
	}
	if r.To != o.Plan.To {
		r = Retry{To: o.Plan.To}
	}
	first := retryFirst
	if !o.Plan.FromDown {
		first = retryBusy
		if r.tries == busyTries {
			return Retry{}
		}
	}
	r.At = now.Add(min(first<<min(r.tries, 20), retryMost))
	r.tries++
	return r
}

// without returns a copy of modes that lacks one.
func without(modes []string, mode string) []string {
	return slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return m == mode })
}

// A View is what a host sees as it decides.
type View struct {
	Mode   string // of the dataplane that serves, or is meant to
	Synced bool   // it has confirmed everything
	Coming bool   // its process is still to come into session
	Serves bool
	Swap   swap.Machine

	Available map[string]bool // which Candidates have a plugin
}

// An Action is what a host is to begin. The zero Action is nothing.
type Action struct {
	Kind  Kind
	Mode  string
	Force bool // of Change: also if Services or connections are lost by it
}

// A Kind is a kind of Action.
type Kind uint8

// The kinds.
const (
	Nothing Kind = iota
	Change       // of mode, to the one of the Action; Begun notes that it has begun
	CleanUp      // what an earlier change left of the mode
	Undo         // the change that is under way, because it does not lead to the mode
)

// Candidates returns the modes of which Next asks whether they have a plugin.
func (i Intent) Candidates() []string {
	if i.beginning {
		return append(slices.Clone(i.Left), i.Wanted())
	}
	return i.Left
}

// Next returns the intent at now, and what is to be done by it. A dataplane that does not come up
// is not waited for: another mode may be asked for because of that.
func (i Intent) Next(v View, now time.Time) (Intent, Action) {
	if i.beginning && (v.Synced || !v.Coming) {
		i.beginning = false
		if wanted := i.Wanted(); v.Available[wanted] {
			i.due = wanted
		}
	}
	i = i.retried(v.Mode, now)
	if i.due != "" {
		switch there, free := stands(v.Swap, v.Mode, i.due); {
		case there:
			i.due, i.force = "", false
		case free:
			return i, Action{Change, i.due, i.force}
		case v.Swap.Stage < swap.Cutting && v.Swap.Plan.To != i.due:
			return i, Action{Kind: Undo, Mode: i.due}
		}
	}
	if left := i.cleanable(v, now); left != "" {
		i.cleanNext = now.Add(retryMost)
		return i, Action{Kind: CleanUp, Mode: left}
	}
	return i, Action{}
}

// Begun notes that the change to a mode has begun.
func (i Intent) Begun(mode string) Intent {
	if i.due == mode {
		i.due, i.force = "", false
	}
	return i
}

// retried has the change due that is to be tried again, once its time has come and if it is
// still wanted.
func (i Intent) retried(mode string, now time.Time) Intent {
	switch to := i.retry.To; {
	case to == "" || now.Before(i.retry.At) || i.due != "":
	case to != mode && i.Wanted() == to:
		i.due, i.retry.At = to, now.Add(retryMost) // the end of that change sets the next time
	default:
		i.retry = Retry{}
	}
	return i
}

// cleanable returns the mode of which rules are left that may be cleaned up now: another mode
// serves, and nothing else is to be done. Empty: there is none.
func (i Intent) cleanable(v View, now time.Time) string {
	busy := i.due != "" || i.beginning || now.Before(i.cleanNext) || i.Wanted() != v.Mode
	if busy || !v.Serves || !v.Synced || v.Swap.Stage != swap.Idle {
		return ""
	}
	at := slices.IndexFunc(i.Left, func(mode string) bool { return mode != v.Mode && v.Available[mode] })
	if at < 0 {
		return ""
	}
	return i.Left[at]
}

// stands says how a change that may be under way stands to a mode: it leads there already,
// or the way to it is free.
func stands(m swap.Machine, serves, mode string) (there, free bool) {
	switch m.Stage {
	case swap.Idle:
		return serves == mode, true
	case swap.Draining:
		return m.Plan.To == mode, m.Plan.From == mode && m.Undo == "" // one that failed is cleared away first
	case swap.Clearing:
		return m.Plan.To == mode, false
	}
	return false, false // it may be undone yet
}
