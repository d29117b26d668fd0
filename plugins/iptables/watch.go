// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

const (
	glanceEvery = time.Second      // at what costs nothing: the sizes of legacy's tables
	auditEvery  = 10 * time.Second // one chain, whatever seems to be the case
	manyHeard   = 1000             // more than anybody need hear before looking
)

// A watch notices, while this process is the writer, when somebody else takes away
// what it wrote, and puts it back:
//
//	nft     the kernel tells of each commit; only what others deleted is looked at
//	legacy  the sizes of the tables; when one is another, the jumps, and all if it shrank
//	both    one chain at a time is read and compared, slowly, whatever seems to be the case
//
// It has two goroutines, which stop ends: one listens, and one looks.
type watch struct {
	plugin  *plugin
	end     context.CancelFunc
	running sync.WaitGroup
	events  *iptables.Events // nil: the backend tells nothing
	alarm   chan struct{}    // has an element while something heard is to be looked at

	mu    sync.Mutex // guards heard
	heard []iptables.Commit
}

func (p *plugin) startWatch() *watch {
	ctx, end := context.WithCancel(context.Background())
	w := &watch{plugin: p, end: end, alarm: make(chan struct{}, 1)}
	if len(p.sides) > 0 && p.sides[0].tool.Backend == iptables.NFT {
		events, err := iptables.Listen()
		if err != nil {
			p.log.Warn("cannot hear who changes the tables", "err", err)
		} else {
			w.events = events
			w.running.Go(w.listen)
		}
	}
	w.running.Go(func() { w.look(ctx) })
	return w
}

// stop ends the watch, and a repair that is going on.
func (w *watch) stop() {
	w.end()
	if w.events != nil {
		_ = w.events.Close() // nothing was written to it
	}
	w.running.Wait()
}

// listen passes on what others did, until the events are closed.
func (w *watch) listen() {
	for {
		c, err := w.events.Next()
		if err != nil {
			return
		}
		if w.plugin.ours.has(int(c.Port)) {
			continue
		}
		w.hear(c)
		select {
		case w.alarm <- struct{}{}:
		default: // it is known that there is something
		}
	}
}

func (w *watch) hear(c iptables.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heard) >= manyHeard {
		w.heard = []iptables.Commit{{Missed: true}}
	}
	w.heard = append(w.heard, c)
}

func (w *watch) take() []iptables.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	heard := w.heard
	w.heard = nil
	return heard
}

// look goes round until ctx ends: at once when something was heard, else each
// second.
func (w *watch) look(ctx context.Context) {
	tick := time.NewTicker(glanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.alarm:
		case <-tick.C:
		}
		if w.plugin.take(ctx) != nil {
			return
		}
		w.plugin.patrol(ctx, w.take())
		w.plugin.give()
	}
}

// patrol looks at each side, and repairs what others broke. What fails is tried
// again on the next round.
func (p *plugin) patrol(ctx context.Context, heard []iptables.Commit) {
	for _, s := range p.sides {
		if !s.known || !s.whole {
			continue // the next Sync reads everything anyway
		}
		jumps := s.book.leads(p.role)
		for _, c := range heard {
			if !p.ours.has(int(c.Port)) { // a Sync may have begun while it was heard
				s.weigh(ctx, c, jumps)
			}
		}
		s.glance(ctx, jumps)
		s.audit(ctx, jumps)
		if s.doubt != "" {
			p.repair(ctx, s, jumps)
		}
	}
	if p.role == sdk.Draining {
		p.countFlows()
	}
}

// repair makes a side say what it should, from a fresh reading.
func (p *plugin) repair(ctx context.Context, s *side, jumps []jump) {
	why := s.doubt
	p.step()
	plan, err := s.repair(ctx, jumps)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.log.Warn("cannot put back what somebody took away", "family", s.book.ground.family, "why", why, "err", err)
	case len(plan) > 0:
		steps := plan.steps()
		p.log.Warn("put back what somebody took away", "family", s.book.ground.family, "why", why, "steps", len(steps), "first", steps[0])
		p.mu.Lock()
		p.report.Repaired++
		p.mu.Unlock()
		p.publish()
	}
}
