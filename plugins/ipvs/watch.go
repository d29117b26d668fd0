// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// How often the watch looks, and at what. An address that goes is heard of at once;
// what somebody flushes or clears is found with the next beat; the audit goes round all
// virtual servers slowly.
const (
	beat       = time.Second
	drainBeats = 5
	reapBeats  = 60
	tableBeats = 60  // the rules, whatever seems to be the case
	auditShare = 600 // a round takes as many beats
)

// A watch looks after what the kernel has, between the host's calls. The plugin that
// is the writer starts it; it ends when the plugin yields, or is closed.
type watch struct {
	stop context.CancelFunc

	mu     sync.Mutex         // guards cancel
	cancel context.CancelFunc // ends the present beat
}

// interrupt ends the present beat, because a call waits.
func (w *watch) interrupt() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cancel != nil {
		w.cancel()
	}
}

func (w *watch) during(cancel context.CancelFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cancel = cancel
}

func (p *plugin) watching() *watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watch
}

// startWatch begins to watch. The caller has the turn.
func (p *plugin) startWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil {
		return
	}
	news := p.kernel.Listen()
	ctx, stop := context.WithCancel(context.Background())
	p.watch = &watch{stop: stop}
	go p.keepWatch(ctx, p.watch, news) // ends with stop, which stopWatch calls
}

// stopWatch ends the watch. The caller has the turn, so no beat is under way, and
// none will begin.
func (p *plugin) stopWatch() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.watch != nil {
		p.watch.stop()
		p.watch = nil
		p.kernel.Hush()
	}
}

func (p *plugin) keepWatch(ctx context.Context, w *watch, news <-chan struct{}) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for n := 0; ; {
		look := p.heed
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-ticker.C:
			n++
			look = func(ctx context.Context) error { return p.beat(ctx, n) }
		}
		now, cancel := context.WithTimeout(ctx, time.Minute)
		w.during(cancel) // before the turn is taken: who comes next waits for it
		if p.turn.Try() {
			p.glance(now, look)
			p.turn.Give()
		}
		w.during(nil)
		cancel()
	}
}

// glance looks, if there is anything to look after. An error is not the host's to
// hear; the next beat tries again.
func (p *plugin) glance(ctx context.Context, look func(context.Context) error) {
	if ctx.Err() != nil {
		return // a call came, or the watch is over
	}
	if p.lock == nil || p.role == 0 || p.state.Revision() == 0 {
		return
	}
	if err := look(ctx); err != nil && ctx.Err() == nil {
		p.log.Warn("cannot look after the kernel", "err", err)
	}
}

// beat does what is due.
func (p *plugin) beat(ctx context.Context, n int) error {
	if err := p.probeAll(ctx); err != nil {
		return err
	}
	if err := p.goOn(ctx); err != nil {
		return err
	}
	switch {
	case n%reapBeats == 1:
		return p.reap()
	case p.role == sdk.Draining && (p.recount || n%drainBeats == 1):
		return p.countFlows(false)
	case p.role == sdk.Standby && n%drainBeats == 1:
		return p.settle(ctx)
	case n%drainBeats == 1:
		return p.keepTracking()
	}
	return p.audit(ctx, n)
}

// heed repairs what was heard of. That is little work: rules and sets are not read.
func (p *plugin) heed(ctx context.Context) error {
	heard := p.kernel.Heard()
	moved, lost := heard.missed, false
	for _, s := range p.sides {
		moved = moved || s.book.moved(heard)
		lost = lost || s.book.lost(heard)
	}
	if !moved && !lost {
		return nil
	}
	return p.repair(ctx, inAddrs, lost)
}

// probeAll looks, at little cost, for what somebody took away or added, and repairs it.
func (p *plugin) probeAll(ctx context.Context) error {
	if err := p.heed(ctx); err != nil {
		return err
	}
	var drifted parts
	for _, s := range p.sides {
		defer func() { s.seen = nil }() // by the next probe it is old
		gone, err := s.gone(ctx)
		if err != nil {
			return err
		}
		drifted |= gone
	}
	if drifted == 0 {
		return nil
	}
	return p.repair(ctx, drifted, true)
}

// repair reads parts of the kernel and makes it right again. One that fails is begun
// anew with the next beat, and reads all. What another process of ours cleaned up stays
// so, until a host says by a role that this one is to serve.
func (p *plugin) repair(ctx context.Context, which parts, drifted bool) error {
	if drifted && p.cleaned().Left() {
		p.log.Warn("another process cleaned up: standing down")
		return p.yield()
	}
	err := p.mend(ctx, which)
	switch {
	case err != nil:
		for _, s := range p.sides {
			s.known = false
		}
	case drifted:
		p.log.Warn("somebody changed what is ours; it is as it should be again")
		p.status.Tell(func(r *sdk.Report) { r.Repaired++ })
	}
	return err
}

func (p *plugin) mend(ctx context.Context, which parts) error {
	if slices.ContainsFunc(p.sides, func(s *side) bool { return !s.known }) {
		which = inAll
	}
	if _, err := p.read(ctx, which); err != nil {
		return err
	}
	for _, s := range p.sides {
		s.book.setGround(p.groundOf(s))
		pieces, _ := p.render(s, sdk.Changes{Node: true})
		if _, err := s.sync(ctx, pieces); err != nil {
			return err
		}
		if which.has(inSets) {
			s.weigh()
		}
	}
	return nil
}
