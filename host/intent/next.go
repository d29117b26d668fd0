// SPDX-License-Identifier: Apache-2.0

package intent

import (
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/swap"
)

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
	Kind Kind
	Mode string
}

// A Kind is a kind of Action.
type Kind uint8

// The kinds.
const (
	Nothing Kind = iota
	Change       // of mode, to the one of the Action; Begun notes that it has begun
	CleanUp      // what an earlier change left of the mode
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
		there, free := stands(v.Swap, v.Mode, i.due)
		if !there && free {
			return i, Action{Change, i.due}
		}
		if there {
			i.due = ""
		}
	}
	if left := i.cleanable(v, now); left != "" {
		i.cleanNext = now.Add(retryMost)
		return i, Action{CleanUp, left}
	}
	return i, Action{}
}

// Begun notes that the change to a mode has begun.
func (i Intent) Begun(mode string) Intent {
	if i.due == mode {
		i.due = ""
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
