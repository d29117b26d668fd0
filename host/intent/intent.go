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
	beginning bool   // the wanted mode becomes due once the first dataplane is up, or does not come up
	retry     Retry
	cleanNext time.Time // when what an earlier change left may be cleaned up
}

// A Retry is a change of mode to try again, because the mode that serves does not serve
// either.
type Retry struct {
	To    string // empty: none
	At    time.Time
	tries int
}

const (
	retryFirst = 2 * time.Second // after a change that was undone while From did not serve
	retryMost  = 5 * time.Minute // it doubles up to this
)

// ByReset is why a change is undone that is not wanted any more.
const ByReset = "pointsman mode reset"

// Begin returns the intent of a host that finds what was saved, while the config file says mode.
func Begin(saved Saved, mode string) Intent {
	return Intent{Saved: saved.under(mode), FileMode: mode, beginning: true}
}

// Wanted returns the mode to serve with. What was asked for holds until the file says another
// mode than it did then.
func (i Intent) Wanted() string { return i.wanted(i.FileMode) }

// Retry returns the change of mode that is to be tried again.
func (i Intent) Retry() Retry { return i.retry }

// FileSays notes the mode of the config file, after that has changed. It takes the place
// of what was asked for.
func (i Intent) FileSays(mode string) Intent {
	i.Saved, i.FileMode = i.under(mode), mode
	i.due, i.beginning = mode, false
	return i
}

// Ask notes that a mode was asked for. It holds, also for hosts to come, until the file
// says another mode or another one is asked for.
func (i Intent) Ask(mode string) Intent {
	i.Asked, i.File = mode, i.FileMode
	if mode == i.FileMode {
		i.Asked, i.File = "", ""
	}
	i.due, i.beginning = "", false
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
	if !o.Plan.Same {
		i.Undone = swap.Outcome{}
		if o.Err != "" {
			i.Undone = o
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
	if !o.Plan.FromDown || o.Err == "" || o.Err == ByReset || o.Stays == o.Plan.To {
		return Retry{}
	}
	if r.To != o.Plan.To {
		r = Retry{To: o.Plan.To}
	}
	r.At = now.Add(min(retryFirst<<min(r.tries, 20), retryMost))
	r.tries++
	return r
}

// without returns a copy of modes that lacks one.
func without(modes []string, mode string) []string {
	return slices.DeleteFunc(slices.Clone(modes), func(m string) bool { return m == mode })
}
