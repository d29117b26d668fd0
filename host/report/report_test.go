// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// A watch is a clock that a test sets.
type watch struct{ at time.Time }

func (w *watch) now() time.Time { return w.at }

// sinkLog records the events of a sink, a line each: the second, the count, the event.
type sinkLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *sinkLog) sink(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%gs %d× %s %s: %s", e.Time.Sub(start).Seconds(), e.Count, e.Reason, e.Object, e.Message))
}

func TestSinks(t *testing.T) {
	crash := Event{Warning: true, Reason: "PluginCrashed", Object: "ipvs", Message: "exit status 2"}
	other := Event{Warning: true, Reason: "PluginCrashed", Object: "ipvs", Message: "killed"}
	type at struct {
		seconds float64
		event   Event
	}
	every := func(step, until float64, e Event) (all []at) {
		for s := 0.0; s < until; s += step {
			all = append(all, at{s, e})
		}
		return all
	}
	for _, tc := range []struct {
		name   string
		events []at
		want   string
	}{
		{"the first event at once", []at{{0, crash}}, `
0s 1× PluginCrashed ipvs: exit status 2`},
		{"events with different messages are different", []at{{0, crash}, {0, other}}, `
0s 1× PluginCrashed ipvs: exit status 2
0s 1× PluginCrashed ipvs: killed`},
		{"repeated events at growing intervals, with their count", every(1, 100, crash), `
0s 1× PluginCrashed ipvs: exit status 2
10s 10× PluginCrashed ipvs: exit status 2
30s 20× PluginCrashed ipvs: exit status 2
70s 40× PluginCrashed ipvs: exit status 2`},
		{"after a long silence at once", []at{{0, crash}, {1, crash}, {700, crash}, {709, crash}, {711, crash}}, `
0s 1× PluginCrashed ipvs: exit status 2
700s 2× PluginCrashed ipvs: exit status 2
711s 2× PluginCrashed ipvs: exit status 2`},
		{"a clock that is set back suppresses nothing", []at{{9000, crash}, {0, crash}}, `
9000s 1× PluginCrashed ipvs: exit status 2
0s 1× PluginCrashed ipvs: exit status 2`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var clock watch
			var log sinkLog
			r := New(clock.now, log.sink)
			for _, e := range tc.events {
				clock.at = start.Add(time.Duration(e.seconds * float64(time.Second)))
				r.Report(e.event)
			}
			if got, want := strings.Join(log.lines, "\n"), strings.TrimPrefix(tc.want, "\n"); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// If ten thousand Services fail for one reason, a sink gets a hundred events, the last with a note. The count
// includes all of them.
func TestFlood(t *testing.T) {
	clock := watch{at: start}
	var log sinkLog
	r := New(clock.now, log.sink)
	for i := range 10_000 {
		r.Report(Event{Reason: "ServiceFailed", Object: fmt.Sprintf("ns/svc-%d", i), Message: "no room"})
	}
	if n := len(log.lines); n != floodLimit {
		t.Errorf("got %d lines, want %d", n, floodLimit)
	}
	if last := log.lines[len(log.lines)-1]; !strings.Contains(last, "only counted") {
		t.Errorf("the last line is %q", last)
	}
	if n := r.Counts()["ServiceFailed"]; n != 10_000 {
		t.Errorf("counted %d", n)
	}
	clock.at = start.Add(floodWindow)
	before := len(log.lines)
	r.Report(Event{Reason: "ServiceFailed", Object: "ns/new", Message: "no room"})
	r.Report(Event{Reason: "PluginCrashed", Object: "ipvs", Message: "killed"})
	if n := len(log.lines) - before; n != 2 {
		t.Errorf("after the flood got %d lines, want 2", n)
	}
}

func TestRecent(t *testing.T) {
	clock := watch{at: start}
	r := New(clock.now)
	for _, message := range []string{"a", "b", "a"} {
		clock.at = clock.at.Add(time.Second)
		r.Report(Event{Reason: "R", Message: message})
	}
	var got []string
	for _, e := range r.Recent() {
		got = append(got, fmt.Sprintf("%s %d× at %s", e.Message, e.Count, e.Time.Sub(start)))
	}
	if want := "b 1× at 2s, a 2× at 3s"; strings.Join(got, ", ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Memory is limited whatever is reported.
func TestBounds(t *testing.T) {
	r := New(time.Now)
	for i := range 3 * maxRecent {
		r.Report(Event{Reason: "R", Object: fmt.Sprint(i, strings.Repeat("é", maxText)), Message: strings.Repeat("x", 100_000) + "\xff"})
	}
	if n := len(r.Recent()); n != maxRecent {
		t.Errorf("remembers %d events, want %d", n, maxRecent)
	}
	for _, e := range r.Recent() {
		if len(e.Object)+len(e.Message) > 2*(maxText+4) || !utf8.ValidString(e.Object+e.Message) {
			t.Fatalf("kept %d bytes of text", len(e.Object)+len(e.Message))
		}
	}
}

func TestConcurrentReports(t *testing.T) {
	var log sinkLog
	r := New(time.Now, log.sink, func(Event) {})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 100 {
				r.Report(Event{Reason: "R", Message: fmt.Sprint(i, j%3)})
				r.Recent()
				r.Counts()
			}
		})
	}
	wg.Wait()
	if n := r.Counts()["R"]; n != 800 {
		t.Errorf("counted %d, want 800", n)
	}
}
