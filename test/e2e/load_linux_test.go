// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// load calls all the time, in each land, and notes what went wrong.
type load struct {
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex // guards what follows
	lands []counts
}

// counts is what came of the calls in one land.
type counts struct {
	calls  int
	failed []string
}

// callGap is the pause between two calls of a load. Each call may take as long as traffic.Timeout:
// on a busy machine an answer may be late.
const callGap = 10 * time.Millisecond

// underLoad calls to from p, one call after the other, until result. What was called
// before any endpoint answered has left flows that lead nowhere, which a port that is used
// again would follow: they go first.
func (w *world) underLoad(p *place, to netip.AddrPort) *load {
	w.Helper()
	for _, n := range w.nodes {
		w.served(n)
		for _, m := range n.machines {
			w.run(m, "conntrack", "-F")
		}
	}
	return w.calledAllTheTime(p, to)
}

// calledAllTheTime calls to from p, one call after the other, until result.
func (w *world) calledAllTheTime(p *place, to netip.AddrPort) *load {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	l := &load{stop: cancel, lands: make([]counts, len(w.lands))}
	w.Cleanup(func() { cancel(); l.ended.Wait() })
	for _, land := range w.lands {
		l.ended.Go(func() { l.run(ctx, land, p, to) }) // ends with ctx
	}
	return l
}

// run calls until ctx ends. Closed connections keep their ports for a minute, and
// there are 28,000: hence a gap.
func (l *load) run(ctx context.Context, land *land, p *place, to netip.AddrPort) {
	pace := time.NewTicker(callGap)
	defer pace.Stop()
	for ; ctx.Err() == nil; <-pace.C {
		got := land.callFor(ctx, traffic.Timeout, p, "tcp4", to)
		if ctx.Err() != nil {
			return
		}
		l.mu.Lock()
		t := &l.lands[land.index]
		if t.calls++; !strings.Contains(got, " saw ") {
			t.failed = append(t.failed, time.Now().Format("05.000 ")+got)
		}
		l.mu.Unlock()
	}
}

// result ends the load, of which no call may have failed.
func (w *world) result(l *load) {
	w.Helper()
	l.stop()
	l.ended.Wait()
	for i, t := range l.lands {
		land := w.lands[i]
		if len(t.failed) > 0 {
			w.Errorf("%s: %d of %d calls failed: %q", land.label, len(t.failed), t.calls, t.failed[:min(5, len(t.failed))])
		}
		if t.calls == 0 {
			w.Errorf("%s: none called", land.label)
		}
		w.Logf("%s: %d calls, %d failed", land.label, t.calls, len(t.failed))
	}
}
