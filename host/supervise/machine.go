// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"cmp"
	"fmt"
	"time"
)

// A State is where a plugin stands.
type State uint8

// The states.
const (
	Stopped  State = iota // not wanted, or told to end
	Starting              // being executed, greeted and configured
	Serving               // in a session
	Suspect               // it missed its beats; asked once more
	Waiting               // it ended or did not come up; tried again at Next
	Refused               // it cannot run here; tried again when something changes
)

var states = [...]string{"stopped", "starting", "serving", "suspect", "waiting", "refused"}

func (s State) String() string {
	if int(s) < len(states) {
		return states[s]
	}
	return fmt.Sprintf("state(%d)", s)
}

// The times that the machine goes by.
const (
	startLimit    = time.Minute            // for Starting, on a machine that does much else; launching and configuring have deadlines of their own within it
	suspectLimit  = 3 * time.Second        // for Suspect; the answer that is awaited has less
	missedBeats   = 1                      // in a row make it Suspect, and one more ends it
	longLife      = 60 * time.Second       // a process that served so long is started again at once, and its failures are forgotten
	firstBackoff  = 100 * time.Millisecond // doubled with each failure in a row,
	lastBackoff   = 30 * time.Second       // up to this
	refusedRetry  = time.Minute            // what cannot be seen changing may have
	yieldFor      = time.Hour              // the other host may be gone by then
	hinderedRetry = time.Second            // the plugin is not to blame, and has done nothing
)

// An Event is what happened to a plugin.
type Event struct {
	Kind EventKind
	Why  string // for what went wrong, or was asked for
}

// An EventKind is a kind of Event.
type EventKind uint8

// The events.
const (
	Begin    EventKind = iota // it is wanted
	Launched                  // it is up and configured
	Failed                    // it did not come up, or its session ended by an error
	Hindered                  // it was not started: the host, or the machine, had no descriptor or no memory left
	Refuses                   // it came up and said that it cannot run here, or now is another host's
	Exited                    // its process ended
	Beat                      // it answered that it is well
	Missed                    // it did not answer
	Starved                   // it did not answer, and could not, for nothing runs in time here: nothing is known
	Hung                      // it answered that a call does not return
	Changed                   // its binary is another
	Restart                   // it is to be started again
	Tick                      // time has passed
	End                       // it is no longer wanted
)

// An Action is what to do about it.
type Action uint8

// The actions. Launch is answered by Launched, Failed or Refuses; what Kill and
// Stop end sends no more events.
const (
	Launch Action = iota + 1 // start a process and configure it
	Kill                     // end one that does not answer
	Stop                     // end one that does
)

// A Machine is the state of a plugin's process, as a value. The zero Machine is Stopped.
type Machine struct {
	State    State
	Since    time.Time // when it came into State
	Why      string    // why it did, where something went wrong
	Up       time.Time // since when the present process serves; zero: none does
	Next     time.Time // in Waiting and Refused: when it is tried again
	Launches int       // processes started
	Failures int       // in a row: starts that failed, lives that were short
	Spared   bool      // a process that hangs is not ended: something else runs it, or it is debugged
	missed   int       // beats, in a row
}

// Step returns what becomes of m by e, and what to do about it. jitter picks a time
// between zero and its argument, so that plugins of many nodes that fail together
// do not come back together. An event that means nothing in a state is ignored.
func (m Machine) Step(e Event, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	if e.Kind == End && m.State != Stopped {
		return m.enter(Stopped, now, e.Why), []Action{Stop}
	}
	switch m.State {
	case Stopped:
		if e.Kind == Begin {
			return m.launch(now, "")
		}
		return m, nil
	case Starting:
		return m.starting(e, now, jitter)
	case Serving:
		return m.serving(e, now, jitter)
	case Suspect:
		return m.suspect(e, now, jitter)
	}
	return m.idle(e, now)
}

func (m Machine) starting(e Event, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	switch {
	case e.Kind == Launched:
		return m.up(Serving, now, now, "")
	case e.Kind == Failed:
		return m.backoff(e.Why, now, jitter)
	case e.Kind == Hindered:
		return m.down(Waiting, now, hinderedRetry, e.Why)
	case e.Kind == Refuses:
		return m.down(Refused, now, refusedRetry, e.Why)
	case e.Kind == Tick && now.Sub(m.Since) >= startLimit:
		return m.after(Kill, fmt.Sprintf("was not up within %s", startLimit), now, jitter)
	}
	return m, nil
}

func (m Machine) serving(e Event, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	switch e.Kind {
	case Beat:
		m.missed = 0
		if now.Sub(m.Up) >= longLife {
			m.Failures = 0
		}
	case Missed:
		m.missed++
		if m.missed >= missedBeats {
			return m.up(Suspect, now, m.Up, e.Why)
		}
	case Hung:
		if m.Spared {
			return m.up(Suspect, now, m.Up, e.Why)
		}
		return m.after(Kill, e.Why, now, jitter)
	case Exited:
		return m.ended(e.Why, now, jitter)
	case Failed:
		return m.after(Stop, e.Why, now, jitter)
	case Refuses:
		return m.yield(now, e.Why)
	case Restart:
		return m.relaunch(now, e.Why)
	}
	return m, nil
}

// hangs is Step for a process that does not answer, or whose call does not return. One that is
// spared stays as it is, with the reason, until it answers or ends.
func (m Machine) hangs(why string, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	if m.Spared {
		m.Why = cmp.Or(why, m.Why)
		return m, nil
	}
	return m.after(Kill, cmp.Or(why, "does not answer: "+m.Why), now, jitter)
}

// yield leaves the plugin to another host that has taken it over. Two that took it
// from each other again and again would not serve: this one waits until it is
// asked, or the plugin is another one, or for so long that the other host may be
// gone.
func (m Machine) yield(now time.Time, why string) (Machine, []Action) {
	m, _ = m.down(Refused, now, yieldFor, why)
	return m, []Action{Stop}
}

func (m Machine) suspect(e Event, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	switch {
	case e.Kind == Beat, e.Kind == Starved:
		return m.up(Serving, now, m.Up, "")
	case e.Kind == Missed, e.Kind == Hung, e.Kind == Tick && now.Sub(m.Since) >= suspectLimit:
		return m.hangs("", now, jitter)
	case e.Kind == Exited:
		return m.ended(e.Why, now, jitter)
	case e.Kind == Failed && m.Spared:
		return m.after(Stop, e.Why, now, jitter)
	case e.Kind == Failed:
		return m.after(Kill, e.Why, now, jitter)
	case e.Kind == Refuses:
		return m.yield(now, e.Why)
	case e.Kind == Restart:
		return m.relaunch(now, e.Why)
	}
	return m, nil
}

// idle is Step in Waiting and Refused: nothing runs.
func (m Machine) idle(e Event, now time.Time) (Machine, []Action) {
	why := m.Why
	switch {
	case e.Kind == Changed, e.Kind == Restart:
		m.Failures = 0
		why = e.Why
	case e.Kind != Tick || now.Before(m.Next):
		return m, nil
	}
	return m.launch(now, why)
}

// ended is Step for a process that ended by itself. One that served for long is started
// again at once; one that did not has to wait.
func (m Machine) ended(why string, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	if now.Sub(m.Up) >= longLife {
		m.Failures = 0
		return m.launch(now, why)
	}
	return m.backoff(why, now, jitter)
}

// backoff waits, longer with each failure in a row.
func (m Machine) backoff(why string, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	wait := min(firstBackoff<<min(m.Failures, 16), lastBackoff)
	m.Failures++
	return m.down(Waiting, now, jitter(wait), why)
}

// after returns what follows when a process has to be ended first.
func (m Machine) after(end Action, why string, now time.Time, jitter func(time.Duration) time.Duration) (Machine, []Action) {
	m, then := m.backoff(why, now, jitter)
	return m, append([]Action{end}, then...)
}

func (m Machine) launch(now time.Time, why string) (Machine, []Action) {
	m = m.enter(Starting, now, why)
	m.Launches++
	return m, []Action{Launch}
}

func (m Machine) relaunch(now time.Time, why string) (Machine, []Action) {
	m, launch := m.launch(now, why)
	return m, append([]Action{Stop}, launch...)
}

// up enters a state of a process that is up since then.
func (m Machine) up(s State, now, since time.Time, why string) (Machine, []Action) {
	m = m.enter(s, now, why)
	m.Up = since
	return m, nil
}

// down enters a state without a process, to be left after retry.
func (m Machine) down(s State, now time.Time, retry time.Duration, why string) (Machine, []Action) {
	m = m.enter(s, now, why)
	m.Next = now.Add(retry)
	return m, nil
}

func (m Machine) enter(s State, now time.Time, why string) Machine {
	m.State, m.Since, m.Why = s, now, why
	m.Up, m.Next, m.missed = time.Time{}, time.Time{}, 0
	return m
}
