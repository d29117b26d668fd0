// SPDX-License-Identifier: Apache-2.0

/*
Package report distributes events. A component calls Report once for each event, and each
sink gets it: the log, Kubernetes events, counters, and the list of recent events that
`pointsman status` shows.

	            ┌─ fold ──────────────────┐      ┌─▶ sink: log line
	Report ───▶ │ new? now. again? later │ ───▶ ├─▶ sink: event
	            └────────────┬────────────┘      └─▶ …
	                         ├─▶ Recent  (each kind of event once, with its count)
	                         └─▶ Counts  (by reason)

A plugin that crashes a hundred times per second must not fill a disk. So repeated events
are passed on at growing intervals, and events beyond a rate are only counted. The counts
are always correct. Memory is limited whatever is reported, because reasons are constants.
The package only passes events on. Start reading at Reporter.Report.
*/
package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Reasons of the host's own events. The tracker and the sources have more.
const (
	HostStarting    = "Starting"        // the host starts
	ConfigTaken     = "ConfigTaken"     // the config file changed and is in force
	ConfigRefused   = "ConfigRefused"   // the config file cannot be used; the last good one stays in force (W005)
	ConfigOdd       = "ConfigOdd"       // the config file has doubtful content that is not an error
	PluginServing   = "PluginServing"   // the process is up
	PluginDown      = "PluginDown"      // the plugin's process ended, hangs, or does not start (W001)
	PluginStarting  = "PluginStarting"  // a plugin's process is started
	PluginStopped   = "PluginStopped"   // the host ended the plugin: at its own end, or because it is not needed, or because an earlier host left it
	PluginLeft      = "PluginLeft"      // the host ends, and the plugin, which something else runs, keeps serving
	PluginRefuses   = "PluginRefuses"   // this node cannot run it, or another host has taken it over (W001)
	PluginRepaired  = "PluginRepaired"  // a dataplane undid another program's change (W023)
	ParameterNotSet = "ParameterNotSet" // a plugin could not set a kernel parameter, such as conntrack's limit in a container with a read-only `/sys` (kube-proxy's `readOnlySysFS`). Set it on the machine, or set `linux.conntrack` to 0
	StateNotUsed    = "StateNotUsed"    // a file in `stateDir` or `dataDir` is damaged, too large, or not regular. It is written again; repeat a `mode swap` that was lost with it
	StateNotWritten = "StateNotWritten" // a file in `stateDir` could not be written (W017)
	StateWritten    = "StateWritten"    // a file in `stateDir` is written again after `StateNotWritten`
	WriterElsewhere = "WriterElsewhere" // another process holds the writer's lock of the mode. The text names it if it is visible from here (W014)
	WriterHere      = "WriterHere"      // the plugin has the writer's lock again
	SyncFailed      = "SyncFailed"      // an update failed and is tried again (W003)
	DataplaneActive = "DataplaneActive" // the dataplane became active on this node
	SwapStage       = "SwapStage"       // a swap is being undone, and why (W009)
	SwapDone        = "SwapDone"        // a swap succeeded
	SwapUndone      = "SwapUndone"      // a swap was undone (W009)
	SwapNote        = "SwapNote"        // a swap continues without proof or verification, affinity was not handed over, or rules are left (W010)
)

// An Event is something that happened.
type Event struct {
	Time    time.Time // zero means now
	Warning bool
	Reason  string // the kind of event, one of a short list of words: "PluginCrashed"
	Object  string // the object of the event: "ns/name", a plugin's name, or nothing
	Message string // what happened, and what to do about it

	// Count is the number of occurrences: in Recent the total, in a Sink those since the sink's
	// last call for this event. Report sets it.
	Count int
}

// A Sink receives events, on the goroutine that reported them. It must return soon and be safe
// for concurrent use.
type Sink func(Event)

// A Reporter passes events to sinks. It is safe for concurrent use.
type Reporter struct {
	now   func() time.Time
	sinks []Sink

	mu     sync.Mutex // guards the fields below
	recent []*folded  // least recently reported first
	counts map[string]int
	floods map[string]flood // by reason
}

// New returns a Reporter that calls the sinks in order. now is the clock, such as time.Now.
func New(now func() time.Time, sinks ...Sink) *Reporter {
	return &Reporter{now: now, sinks: sinks, counts: make(map[string]int), floods: make(map[string]flood)}
}

// Report counts e, adds it to the recent events, and passes it to the sinks unless they got the
// same event recently.
func (r *Reporter) Report(e Event) {
	if e.Time.IsZero() {
		e.Time = r.now()
	}
	e.Object, e.Message = limitText(e.Object), limitText(e.Message)
	if out, pass := r.record(e); pass {
		for _, sink := range r.sinks {
			sink(out)
		}
	}
}

// Recent returns the recent events, each kind once with its count, the latest last.
func (r *Reporter) Recent() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := make([]Event, len(r.recent))
	for i, f := range r.recent {
		events[i] = f.event
	}
	return events
}

// Counts returns the number of events by reason.
func (r *Reporter) Counts() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// record counts e with the equal events before it, and returns the event for the sinks if it is to
// be passed on now. It forgets the least recently reported event if there are too many.
func (r *Reporter) record(e Event) (out Event, pass bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[e.Reason]++
	f := new(folded)
	i := slices.IndexFunc(r.recent, func(f *folded) bool {
		before := f.event
		before.Time, before.Count = e.Time, e.Count
		return before == e
	})
	switch {
	case i >= 0:
		f = r.recent[i]
		r.recent = slices.Delete(r.recent, i, i+1)
	case len(r.recent) == maxRecent:
		r.recent = slices.Delete(r.recent, 0, 1)
	}
	r.recent = append(r.recent, f)
	if out, pass = f.add(e); !pass {
		return out, false
	}
	window := r.floods[e.Reason]
	if e.Time.Sub(window.start).Abs() >= floodWindow {
		window = flood{start: e.Time}
	}
	window.passed++
	r.floods[e.Reason] = window
	if window.passed == floodLimit {
		out.Message += fmt.Sprintf("; these are %d in a minute, so further ones are only counted: see pointsman status", floodLimit)
	}
	return out, window.passed <= floodLimit
}

// Limits. Together they keep a Reporter below a megabyte, and a sink below two lines per second
// for each reason.
const (
	maxRecent = 256  // distinct events kept
	maxText   = 2048 // bytes of an object or message

	firstRepeat = 10 * time.Second // pass on a repeated event after this time,
	lastRepeat  = 10 * time.Minute // then after twice the time, up to this

	floodWindow = time.Minute // in each window,
	floodLimit  = 100         // pass on at most this many events of a reason
)

// A folded event represents all equal events.
type folded struct {
	event Event // the last one, with the total count
	since int   // occurrences since the sinks got it
	again time.Duration
	next  time.Time // do not pass it on before this time
}

// add counts e. The first event, and the first after a long silence, is passed on at once;
// repeated ones at growing intervals.
func (f *folded) add(e Event) (out Event, pass bool) {
	quiet := e.Time.Sub(f.event.Time) >= lastRepeat
	e.Count = f.event.Count + 1
	f.event = e
	f.since++
	if wait := f.next.Sub(e.Time); wait > 0 && wait <= lastRepeat { // a longer wait means that the clock was set back
		return Event{}, false
	}
	if quiet {
		f.again = 0
	}
	f.again = min(max(2*f.again, firstRepeat), lastRepeat)
	f.next = e.Time.Add(f.again)
	e.Count, f.since = f.since, 0
	return e, true
}

// A flood counts the events of one reason in a window: if ten thousand Services fail for one
// reason, that must not become ten thousand log lines.
type flood struct {
	start  time.Time
	passed int
}

// limitText limits the length of a text and makes it valid UTF-8.
func limitText(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "")
}
