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
	lookEvery  = 500 * time.Millisecond // at what costs nothing: what was heard, how big tables are
	auditEvery = 10 * time.Second       // one chain, whatever seems to be the case
	patience   = 4                      // for how many looks somebody may be at it
	manyHeard  = 1000                   // more than anybody need hear before looking
)

// A watch notices, while this process is the writer, when somebody else takes away
// what it wrote, and puts it back:
//
//	nft     the kernel tells of each commit; only what others deleted is looked at
//	legacy  the sizes of the tables; when one is another, the jumps, and all if it shrank
//	both    one chain at a time is read and compared, slowly, whatever seems to be the case
//
// Whoever empties tables mostly is not done yet, and would stumble over what comes
// back at once; so it waits for a moment in which nobody changes anything, though
// not for long.
//
// It has two goroutines, which stop ends: one listens, and one looks.
type watch struct {
	plugin  *plugin
	end     context.CancelFunc
	running sync.WaitGroup
	events  *iptables.Events // nil: the backend tells nothing

	mu    sync.Mutex // guards what follows
	heard []iptables.Commit
	first time.Time // when the first of heard came
	last  time.Time // and the last
}

// writes is told of each program that writes for us, so that it is not heard.
func (p *plugin) writes(pid int) {
	p.ours.add(pid)
	p.ignore(pid)
}

// wrote is told when it has ended.
func (p *plugin) wrote() { p.ignore(0) }

func (p *plugin) ignore(pid int) {
	if p.watch != nil && p.watch.events != nil {
		_ = p.watch.events.Ignore(pid) // else it is heard, and known by its number
	}
}

func (p *plugin) startWatch() *watch {
	ctx, end := context.WithCancel(context.Background())
	w := &watch{plugin: p, end: end}
	if len(p.sides) > 0 && p.sides[0].tool.Backend == iptables.NFT {
		events, err := iptables.Listen()
		if err != nil {
			p.log.Warn("cannot hear who changes the tables", "err", err)
		} else {
			w.events, events.Matters = events, matters
			w.running.Go(w.listen)
		}
	}
	w.running.Go(func() { w.look(ctx) })
	return w
}

// stop ends the watch, and a repair that is going on.
func (w *watch) stop() {
	w.quit()
	w.running.Wait()
}

// quit tells both goroutines to end.
func (w *watch) quit() {
	w.end()
	if w.events != nil {
		_ = w.events.Close() // nothing was written to it
	}
}

// listen passes on what others did, until the events are closed.
func (w *watch) listen() {
	for {
		c, err := w.events.Next()
		if err != nil {
			return
		}
		if !w.plugin.ours.has(int(c.Port)) {
			w.hear(c)
		}
	}
}

func (w *watch) hear(c iptables.Commit) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.heard) >= manyHeard {
		w.heard = []iptables.Commit{{Missed: true}}
	}
	w.last = time.Now()
	if len(w.heard) == 0 {
		w.first = w.last
	}
	w.heard = append(w.heard, c)
}

// take is what was heard, once nobody has anything to add.
func (w *watch) take() []iptables.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Since(w.last) < lookEvery && time.Since(w.first) < patience*lookEvery {
		return nil
	}
	heard := w.heard
	w.heard = nil
	return heard
}

// look goes round until ctx ends.
func (w *watch) look(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if w.plugin.turn.Take(ctx) != nil {
			return
		}
		w.plugin.patrol(ctx, w.take())
		for w.plugin.goOn(ctx) {
			w.plugin.turn.Give() // a call that waits goes first
			if w.plugin.turn.Take(ctx) != nil {
				return
			}
		}
		w.plugin.turn.Give()
	}
}

// patrol looks at each side, and repairs what others broke. What fails is tried
// again on the next round.
func (p *plugin) patrol(ctx context.Context, heard []iptables.Commit) {
	p.followAddresses(ctx)
	for _, s := range p.sides {
		if !s.known || !s.book.whole {
			continue // the next Sync reads everything anyway
		}
		jumps := s.book.leads(p.role)
		for _, c := range heard {
			if !p.ours.has(int(c.Port)) { // a Sync may have begun while it was heard
				s.weigh(ctx, c, jumps)
			}
		}
		s.glance(jumps)
		s.audit(ctx, jumps)
		if (s.doubt != "" || s.masq.Doubted()) && p.cleanedMark().Left() {
			p.standDown()
			return
		}
		p.mend(ctx, s)
		if s.doubt != "" {
			p.repair(ctx, s, jumps)
		}
	}
	if p.role == sdk.Draining {
		p.countFlows()
	}
}

// mend puts back what somebody took away of the chains that all dataplanes share.
func (p *plugin) mend(ctx context.Context, s *side) {
	steps, err := s.masq.Mend(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.log.Warn("cannot put back what somebody took away", "family", s.book.ground.family, "err", err)
	case len(steps) > 0:
		p.log.Warn("put back what somebody took away", "family", s.book.ground.family, "steps", len(steps), "first", steps[0])
		p.status.Tell(func(r *sdk.Report) { r.Repaired++ })
		p.publish()
	}
}

// repair makes a side say what it should, from a fresh reading.
func (p *plugin) repair(ctx context.Context, s *side, jumps []iptables.Jump) {
	why := s.doubt
	p.status.Step()
	plan, err := s.repair(ctx, jumps)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.log.Warn("cannot put back what somebody took away", "family", s.book.ground.family, "why", why, "err", err)
	case len(plan) > 0:
		steps := plan.steps()
		p.log.Warn("put back what somebody took away", "family", s.book.ground.family, "why", why, "steps", len(steps), "first", steps[0])
		p.status.Tell(func(r *sdk.Report) { r.Repaired++ })
		p.publish()
	}
}
