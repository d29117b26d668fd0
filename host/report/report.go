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
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"
)

// The reasons of the host's own events. Others are the tracker's and the sources'.
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
	e.Reason, e.Object, e.Message = cut(e.Reason), cut(e.Object), cut(e.Message)
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

// take records e and returns what the sinks are to get. Past a bound, reasons share one name.
func (r *Reporter) take(e Event) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.counts[e.Reason]; !known && len(r.counts) >= maxReasons {
		e.Reason = otherReasons
	}
	r.counts[e.Reason]++
	out, ok := r.fold(e)
	if !ok {
		return nil
	}
	if r.floods[e.Reason] == nil {
		r.floods[e.Reason] = new(flood)
	}
	return r.floods[e.Reason].admit(out)
}

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
const otherReasons = "Other" // further reasons, which have no name of their own in the metric

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
