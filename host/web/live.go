// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

const (
	// mostStreams is how many pages can be kept current at once. Others stay as they were asked for.
	mostStreams = 8

	// liveEach is how often the host is asked whether something has changed, while any page is
	// kept current.
	liveEach = time.Second

	// quietFor is after how many times without a change a stream says that it is still there.
	quietFor = 15
)

// A live notices changes for the pages that are open, with one goroutine for all of them: it is begun
// by the first stream and ends with the last one. It is safe for concurrent use.
type live struct {
	look func() uint64 // another number when something has changed
	each time.Duration

	mu      sync.Mutex // guards what follows
	streams map[chan uint64]bool
	stop    context.CancelFunc // of the goroutine; nil: there is none
}

func newLive(look func() uint64) *live {
	return &live{look: look, each: liveEach, streams: make(map[chan uint64]bool)}
}

// open begins a stream of versions, the present one first. A reader that is slow misses those in
// between. It returns false when there are too many streams. The caller calls close in the end.
func (l *live) open() (versions chan uint64, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.streams) >= mostStreams {
		return nil, false
	}
	versions = make(chan uint64, 1)
	l.streams[versions] = true
	if l.stop == nil {
		var ctx context.Context
		ctx, l.stop = context.WithCancel(context.Background())
		go l.run(ctx)
	}
	return versions, true
}

func (l *live) close(versions chan uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.streams, versions)
	if len(l.streams) == 0 {
		l.stop()
		l.stop = nil
	}
}

// run looks until ctx ends, and has each stream know the version.
func (l *live) run(ctx context.Context) {
	tick := time.NewTicker(l.each)
	defer tick.Stop()
	for {
		version := l.look()
		l.mu.Lock()
		if ctx.Err() != nil { // another goroutine may look by now
			l.mu.Unlock()
			return
		}
		for stream := range l.streams {
			select {
			case <-stream: // what was not taken yet is out of date
			default:
			}
			stream <- version
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// version returns a number that is another one when something has changed that a page shows. What
// changes by itself, such as the memory of a plugin, does not count.
func version(s admin.Status, events []admin.Event) uint64 {
	sum := fnv.New64a()
	if s.Swap != nil {
		fmt.Fprintln(sum, *s.Swap)
	}
	if s.LastSwap != nil {
		fmt.Fprintln(sum, *s.LastSwap)
	}
	for _, w := range s.Warnings { // their texts say how long something has been so
		fmt.Fprintln(sum, w.Code)
	}
	if n := len(events); n > 0 {
		fmt.Fprintln(sum, events[n-1])
	}
	s.Swap, s.LastSwap, s.Warnings, s.Dataplane.Memory = nil, nil, nil, 0
	fmt.Fprintln(sum, s)
	return sum.Sum64()
}

// changes answers with an event for each change, until the caller is gone.
func (s *Site) changes(w http.ResponseWriter, r *http.Request) error {
	versions, ok := s.live.open()
	if !ok {
		return &admin.Error{Code: http.StatusServiceUnavailable, What: "too many pages are kept current", Why: fmt.Sprintf("the host does so for %d", mostStreams), Try: "load the page again"}
	}
	defer s.live.close(versions)
	w = admin.Limited(w)
	out := http.NewResponseController(w)
	_ = out.SetReadDeadline(time.Time{}) // or it would not be noticed that the caller is gone
	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprint(w, "retry: 5000\n\n")
	shown, quiet := uint64(0), 0
	for first := true; ; first = false {
		var now uint64
		select {
		case <-r.Context().Done():
			return nil
		case now = <-versions:
		}
		quiet++
		switch {
		case first || now != shown:
			shown, quiet = now, 0
			fmt.Fprintf(w, "event: version\ndata: %x\n\n", now)
		case quiet >= quietFor:
			quiet = 0
			fmt.Fprint(w, ":\n\n")
		default:
			continue
		}
		if err := out.Flush(); err != nil {
			return nil
		}
	}
}
