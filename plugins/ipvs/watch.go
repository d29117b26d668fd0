// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// How often the watch looks, and at what. What somebody flushes or deletes is found
// within the first two; the audit goes round all virtual servers slowly.
const (
	beat       = time.Second
	probeBeats = 2
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
	p.kernel.Listen()
	ctx, stop := context.WithCancel(context.Background())
	p.watch = &watch{stop: stop}
	go p.keepWatch(ctx, p.watch)
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

func (p *plugin) keepWatch(ctx context.Context, w *watch) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, cancel := context.WithTimeout(ctx, time.Minute)
		w.during(cancel) // before the turn is taken: who comes next waits for it
		if p.turn.Try() {
			p.beat(now, n)
			p.turn.Give()
		}
		w.during(nil)
		cancel()
	}
}

// beat does what is due. An error is not the host's to hear; the next beat tries again.
func (p *plugin) beat(ctx context.Context, n int) {
	if ctx.Err() != nil {
		return // a call came, or the watch is over
	}
	if p.lock == nil || p.role == 0 || p.state.Revision() == 0 {
		return
	}
	var err error
	switch {
	case n%probeBeats == 0:
		err = p.probeAll(ctx)
	case n%reapBeats == 1:
		err = p.reap()
	case n%drainBeats == 1 && p.role == sdk.Draining:
		err = p.countFlows()
	default:
		err = p.audit(ctx, n)
	}
	if err != nil && ctx.Err() == nil {
		p.log.Warn("cannot look after the kernel", "err", err)
	}
}

// probeAll looks, at little cost, for what somebody took away or added, and repairs it.
func (p *plugin) probeAll(ctx context.Context) error {
	heard := p.kernel.Heard()
	moved, drifted := heard.missed, false
	for _, s := range p.sides {
		moved = moved || s.book.moved(heard)
		drifted = drifted || !s.known || s.book.lost(heard)
		if !drifted {
			gone, err := s.gone(ctx)
			if err != nil {
				return err
			}
			drifted = gone
		}
	}
	if !moved && !drifted {
		return nil
	}
	return p.repair(ctx, drifted)
}

// moved reports whether the node's own addresses are others than we know.
func (b *book) moved(h heard) bool {
	return slices.ContainsFunc(h.others, func(c change) bool {
		return sdk.FamilyOf(c.addr) == b.ground.family && b.have.others[c.addr] == c.gone
	})
}

// lost reports whether our device lost an address that we bound.
func (b *book) lost(h heard) bool {
	return slices.ContainsFunc(h.lost, func(a netip.Addr) bool { return b.have.vips[a] })
}

// gone reports whether the virtual servers were cleared, a set emptied, or rules
// removed. One of each kind is asked for.
func (s *side) gone(ctx context.Context) (bool, error) {
	for at := range s.book.have.servers {
		if _, there, err := s.kernel.Loads(at); err != nil || !there {
			return !there, err
		}
		break
	}
	if s.emptied() {
		return true, nil
	}
	if !s.rules.changed() {
		return false, nil
	}
	return s.flushed(ctx)
}

// emptied reports whether a set lacks the entry of ours that was asked for.
func (s *side) emptied() bool {
	asked := make(map[set]bool)
	for e := range s.book.have.entries {
		if asked[e.set] {
			continue
		}
		asked[e.set] = true
		if there, err := s.kernel.Has(e); err != nil || !there {
			return true
		}
		if len(asked) == int(setCount) {
			break
		}
	}
	return false
}

// flushed reports whether chains or jumps of ours are otherwise than we know.
func (s *side) flushed(ctx context.Context) (bool, error) {
	tables, err := s.rules.Save(ctx)
	if err != nil {
		return false, err
	}
	for id, text := range s.book.have.chains {
		if rules, there := tables[id]; !there || joined(rules) != text {
			return true, nil
		}
	}
	for j := range s.book.have.jumps {
		if !tables.Has(j.at, j.rule) {
			return true, nil
		}
	}
	return false, nil
}

// repair reads the kernel and makes it right again.
func (p *plugin) repair(ctx context.Context, drifted bool) error {
	if _, err := p.read(ctx); err != nil {
		return err
	}
	for _, s := range p.sides {
		s.book.setGround(p.groundOf(s))
		pieces, _ := p.render(s, sdk.Changes{Node: true}, sdk.Update{})
		if _, err := s.sync(ctx, pieces); err != nil {
			return err
		}
	}
	if drifted {
		p.log.Warn("somebody changed what is ours; it is as it should be again")
		p.status.Tell(func(r *sdk.Report) { r.Repaired++ })
	}
	return nil
}

// audit compares a few virtual servers and entries with what we know of them.
func (p *plugin) audit(ctx context.Context, n int) error {
	for _, s := range p.sides {
		same, err := s.sample()
		if err == nil && same && n%tableBeats == tableBeats-1 {
			var flushed bool
			flushed, err = s.flushed(ctx)
			same = !flushed
		}
		if err != nil {
			return err
		}
		if !same {
			s.known = false // the next probe repairs it
		}
	}
	return nil
}

// sample reports whether some of what there is, is as we know it. The order of a map
// is another each time.
func (s *side) sample() (bool, error) {
	i := 0
	for at, v := range s.book.have.servers {
		if i++; i > 1+len(s.book.have.servers)/auditShare {
			break
		}
		loads, there, err := s.kernel.Loads(at)
		if err != nil || !there || !v.like(loads) {
			return false, err
		}
	}
	i = 0
	for e := range s.book.have.entries {
		if i++; i > 1+len(s.book.have.entries)/auditShare {
			break
		}
		if there, err := s.kernel.Has(e); err != nil || !there {
			return false, err
		}
	}
	return true, nil
}

func (v virtual) like(loads map[netip.AddrPort]load) bool {
	if len(loads) != len(v.reals) {
		return false
	}
	for real, weight := range v.reals {
		if l, there := loads[real]; !there || l.weight != weight {
			return false
		}
	}
	return true
}
