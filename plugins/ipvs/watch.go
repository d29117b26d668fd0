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
	go p.keepWatch(ctx, p.watch, news)
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
	for n := 1; ; {
		look := p.heed
		select {
		case <-ctx.Done():
			return
		case <-news:
		case <-ticker.C:
			look = func(ctx context.Context) error { return p.beat(ctx, n) }
			n++
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
	switch {
	case n%reapBeats == 1:
		return p.reap()
	case n%drainBeats == 1 && p.role == sdk.Draining:
		return p.countFlows()
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

// gone is where something was taken away, or added: a virtual server, of which one is
// asked for; an entry, of which the sets tell how many they have; rules.
func (s *side) gone(ctx context.Context) (parts, error) {
	if !s.known {
		return inAll, nil
	}
	var gone parts
	for at := range s.book.have.servers {
		_, there, err := s.kernel.Loads(at)
		if err != nil {
			return 0, err
		}
		if !there {
			gone |= inServers
		}
		break
	}
	if s.emptied() {
		gone |= inSets
	}
	if s.rules.changed() {
		flushed, err := s.flushed(ctx)
		if err != nil {
			return 0, err
		}
		if flushed {
			gone |= inRules
		}
	}
	return gone, nil
}

// emptied reports whether a set has another number of entries than we know of. What
// did not add up right after all was read is not held against it: the kernel may take
// two entries for one.
func (s *side) emptied() bool {
	for set, known := range s.book.have.counts {
		n, err := s.kernel.Count(set, s.book.ground.family)
		if err != nil || n >= 0 && n != known+s.extra[set] {
			return true
		}
	}
	return false
}

// weigh notes what does not add up.
func (s *side) weigh() {
	clear(s.extra)
	for set, known := range s.book.have.counts {
		if n, err := s.kernel.Count(set, s.book.ground.family); err == nil && n != known {
			s.extra[set] = n - known
		}
	}
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

// repair reads parts of the kernel and makes it right again.
func (p *plugin) repair(ctx context.Context, which parts, drifted bool) error {
	if slices.ContainsFunc(p.sides, func(s *side) bool { return !s.known }) {
		which = inAll
	}
	if _, err := p.read(ctx, which); err != nil {
		return err
	}
	for _, s := range p.sides {
		s.book.setGround(p.groundOf(s))
		pieces, _ := p.render(s, sdk.Changes{Node: true}, sdk.Update{})
		if _, err := s.sync(ctx, pieces); err != nil {
			return err
		}
		if which.has(inSets) {
			s.weigh()
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
