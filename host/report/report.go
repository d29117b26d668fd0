// SPDX-License-Identifier: Apache-2.0

/*
Package report takes one call for each thing that happened, and sees to it that
every sink gets it once: a log line, a Kubernetes event, a counter, the
list of recent events that `pointsman status` shows.

	            ┌─ fold ──────────────────┐      ┌─▶ sink: log line
	Report ───▶ │ new? now. again? later │ ───▶ ├─▶ sink: event
	            └────────────┬────────────┘      └─▶ …
	                         ├─▶ Recent  (each kind of event once, with its count)
	                         └─▶ Counts  (by reason)

A plugin that crashes a hundred times a second must not fill a disk, so what
repeats is passed on ever more seldom, and what comes in a flood is only counted. The
counts are always true. Memory is bounded whatever comes in.
*/
package report

import (
	"container/list"
	"maps"
	"sync"
	"time"
)

// An Event is one thing that happened.
type Event struct {
	Time    time.Time // zero: now
	Warning bool
	Reason  string // what kind of thing, one of a short list of words: "PluginCrashed"
	Object  string // what it happened to: "ns/name", a plugin's name, or nothing
	Message string // a sentence, and what to do about it

	// Count is how often it happened: in Recent altogether, and given to a sink
	// since the sink last got it. Report sets it.
	Count int
}

// A Sink gets events, on the goroutine that reported them. It must return
// soon, and be safe for concurrent use.
type Sink func(Event)

// A Reporter passes events to sinks. It is safe for concurrent use.
type Reporter struct {
	now   func() time.Time
	sinks []Sink

	mu     sync.Mutex // guards what follows
	recent *list.List // of *folded, the longest unseen first
	byKey  map[key]*list.Element
	counts map[string]int
	floods map[string]*flood // by reason
}

// New returns a Reporter that calls sinks, in their order. now is the clock,
// such as time.Now.
func New(now func() time.Time, sinks ...Sink) *Reporter {
	return &Reporter{
		now:    now,
		sinks:  sinks,
		recent: list.New(),
		byKey:  make(map[key]*list.Element),
		counts: make(map[string]int),
		floods: make(map[string]*flood),
	}
}

// Report counts e, keeps it among the recent ones, and passes it to the
// sinks unless they got the same lately.
func (r *Reporter) Report(e Event) {
	if e.Time.IsZero() {
		e.Time = r.now()
	}
	e.Reason = r.reason(e.Reason)
	e.Object = cut(e.Object)
	e.Message = cut(e.Message)
	for _, out := range r.take(e) {
		for _, sink := range r.sinks {
			sink(out)
		}
	}
}

// Recent lists what happened lately, each kind of event once with how often it
// happened, the latest last.
func (r *Reporter) Recent() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := make([]Event, 0, r.recent.Len())
	for el := r.recent.Front(); el != nil; el = el.Next() {
		events = append(events, el.Value.(*folded).event)
	}
	return events
}

// Counts says how often each reason was reported.
func (r *Reporter) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// take records e and returns what the sinks are to get.
func (r *Reporter) take(e Event) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[e.Reason]++
	out, ok := r.fold(e)
	if !ok {
		return nil
	}
	return r.flood(e.Reason).admit(out)
}

// reason returns the name under which to count: past a bound, reasons share one.
func (r *Reporter) reason(reason string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.counts[cut(reason)]; known || len(r.counts) < maxReasons {
		return cut(reason)
	}
	return otherReasons
}
