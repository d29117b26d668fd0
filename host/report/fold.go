// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"time"
)

// The bounds. Together they keep a Reporter under a megabyte, and a sink under
// two lines a second for each reason.
const (
	maxRecent  = 256  // events remembered
	maxReasons = 128  // reasons counted by name
	maxText    = 2048 // bytes of an object or message

	firstAgain = 10 * time.Second // a repeated event is passed on again after this,
	lastAgain  = 10 * time.Minute // then after twice as long, up to this

	floodWindow = time.Minute // in one window,
	floodLimit  = 100         // a reason is passed on at most so often
)

// otherReasons counts what comes after maxReasons different ones.
const otherReasons = "Other"

// A key is what makes two events the same.
type key struct {
	warning                 bool
	reason, object, message string
}

// A folded event stands for all that were the same.
type folded struct {
	event Event // the last one, counted altogether
	since int   // how many since the sinks got it
	again time.Duration
	next  time.Time // not passed on again before
}

// fold joins e with those that were the same, and says whether to pass it on now.
func (r *Reporter) fold(e Event) (out Event, pass bool) {
	k := key{e.Warning, e.Reason, e.Object, e.Message}
	el, seen := r.byKey[k]
	if !seen {
		el = r.recent.PushBack(&folded{})
		r.byKey[k] = el
		r.forget()
	}
	r.recent.MoveToBack(el)
	return el.Value.(*folded).add(e)
}

// add counts e. It is passed on at once the first time and after a long silence, and
// in growing steps while it goes on.
func (f *folded) add(e Event) (out Event, pass bool) {
	quiet := e.Time.Sub(f.event.Time) >= lastAgain
	e.Count = f.event.Count + 1
	f.event = e
	f.since++
	if wait := f.next.Sub(e.Time); wait > 0 && wait <= lastAgain { // longer: the clock was set back
		return Event{}, false
	}
	if quiet {
		f.again = 0
	}
	f.again = min(max(2*f.again, firstAgain), lastAgain)
	f.next = e.Time.Add(f.again)
	e.Count, f.since = f.since, 0
	return e, true
}

// forget drops the event that was not seen for longest.
func (r *Reporter) forget() {
	if r.recent.Len() <= maxRecent {
		return
	}
	oldest := r.recent.Front()
	e := r.recent.Remove(oldest).(*folded).event
	delete(r.byKey, key{e.Warning, e.Reason, e.Object, e.Message})
}

// A flood counts the events of one reason in a window: ten thousand Services that
// fail for one cause are not ten thousand log lines.
type flood struct {
	start  time.Time
	passed int
}

func (r *Reporter) flood(reason string) *flood {
	f, ok := r.floods[reason]
	if !ok {
		f = &flood{}
		r.floods[reason] = f
	}
	return f
}

// admit passes e on, or not; the last one that it passes says that others follow.
func (f *flood) admit(e Event) []Event {
	if e.Time.Sub(f.start).Abs() >= floodWindow {
		*f = flood{start: e.Time}
	}
	f.passed++
	switch {
	case f.passed < floodLimit:
		return []Event{e}
	case f.passed == floodLimit:
		more := Event{
			Time: e.Time, Warning: e.Warning, Reason: e.Reason, Count: 1,
			Message: fmt.Sprintf("more than %d of these in a minute: the others are counted but not told; see pointsman status", floodLimit),
		}
		return []Event{e, more}
	}
	return nil
}

// cut keeps a text within bounds, and readable.
func cut(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
