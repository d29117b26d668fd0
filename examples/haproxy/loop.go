// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// How often what is done between calls is done. The lock is tried often at first: mostly its holder
// is about to end.
const (
	lookEvery = 100 * time.Millisecond
	oftenFor  = 3 * time.Second
	trySeldom = time.Second
	sweepTime = time.Second
	idleTime  = 3 * time.Minute // how long what is done between calls may take
)

// loop does what no call asks for, until the plugin is closed.
func (p *plugin) loop() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.ctx.Done():
			return
		}
		if p.enter(p.ctx) != nil {
			return
		}
		ctx, cancel := context.WithTimeout(p.ctx, idleTime)
		p.between(ctx)
		cancel()
		p.leave()
	}
}

// between tries the lock, starts HAProxy again where it has ended, and removes what has had its time.
func (p *plugin) between(ctx context.Context) {
	if p.session && p.role != sdk.Yielded && p.status.awaits() {
		p.tryAgain(ctx)
	}
	if p.lock == nil {
		return
	}
	if p.known && p.current != nil && p.current.ended() {
		p.repair(ctx)
	}
	if time.Since(p.swept) >= sweepTime {
		p.swept = time.Now()
		p.sweep(ctx)
	}
}

// tryAgain tries the writer's lock, and writes all that was sent before it was there.
func (p *plugin) tryAgain(ctx context.Context) {
	now := time.Now()
	if now.Before(p.nextTry) {
		return
	}
	if now.Sub(p.awaits) > oftenFor {
		p.nextTry = now.Add(trySeldom)
	}
	err := p.adopt(ctx)
	if err == nil && p.lock != nil && p.updated {
		err = p.writeAll(ctx)
	}
	if err != nil {
		p.nextTry = now.Add(trySeldom)
		p.log.Warn("cannot write what was planned; trying again", "err", err)
	}
}

// repair starts HAProxy again, unless a Cleanup of another process has ended it.
func (p *plugin) repair(ctx context.Context) {
	if time.Now().Before(p.nextTry) {
		return
	}
	p.nextTry = time.Now().Add(trySeldom)
	number, err := p.store.current()
	switch {
	case err != nil || !p.updated || !p.serves():
		return
	case number != p.current.number:
		p.log.Warn("another process has cleaned up; serving nothing until the next update")
		p.current, p.have, p.known = nil, nil, false
		return
	}
	p.log.Error("HAProxy has ended by itself; starting it again", "was", p.current.String())
	if err := p.writeAll(ctx); err != nil {
		p.log.Error("cannot start HAProxy again; trying again", "err", err)
		return
	}
	p.status.repaired()
}

// sweep removes what is left of instances that have ended, and servers and clients that have had their
// time.
func (p *plugin) sweep(ctx context.Context) {
	p.draining = slices.DeleteFunc(p.draining, func(i *instance) bool {
		if !i.ended() {
			return false
		}
		if err := i.remove(ctx); err != nil {
			p.log.Warn("files of an HAProxy that has ended are left", "err", err)
		}
		return true
	})
	p.count()
	if p.current == nil || p.current.ended() {
		return
	}
	var commands []string
	for n, r := range p.have {
		if len(r.resting) == 0 {
			continue
		}
		commands = append(commands, r.forgets()...)
		p.have[n] = r
	}
	commands = append(commands, p.affinity.expired(ctx, p.current, time.Now())...)
	if len(commands) == 0 {
		return
	}
	if _, err := p.current.api().ask(ctx, commands...); err != nil {
		p.log.Warn("cannot remove servers that have no connections any more", "err", err)
	}
	p.lookAgain(ctx)
}

// lookAgain reads which servers still rest.
func (p *plugin) lookAgain(ctx context.Context) {
	for n, r := range p.have {
		if len(r.resting) == 0 {
			continue
		}
		servers, err := p.current.api().servers(ctx, sectionName(n))
		if err != nil {
			p.known = false
			return
		}
		p.have[n] = r.section.with(servers[sectionName(n)])
	}
}

// count reports how many connections are left to those that listen no more.
func (p *plugin) count() {
	flows := 0
	for _, i := range p.draining {
		if !i.ended() {
			flows += connections(i.process.PID())
		}
	}
	p.status.flows(flows)
}

// A status is what Report says.
type status struct {
	mu       sync.Mutex // guards what follows, which Report reads beside calls
	report   sdk.Report
	received uint64 // the revision that was sent last in this session
}

func (s *status) tell(change func(*sdk.Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.report)
}

func (s *status) step()       { s.tell(func(r *sdk.Report) { r.Progress++ }) }
func (s *status) flows(n int) { s.tell(func(r *sdk.Report) { r.Flows = n }) }
func (s *status) repaired()   { s.tell(func(r *sdk.Report) { r.Repaired++ }) }
func (s *status) begin() {
	s.tell(func(r *sdk.Report) { s.received, r.Served, r.Unserved = 0, 0, nil })
}

// lock notes how it stands with the lock, and returns how it stood.
func (s *status) lock(lock sdk.Lock, holder sdk.Holder) (was sdk.Lock) {
	s.tell(func(r *sdk.Report) {
		was = r.Lock
		r.Lock, r.Holder = lock, holder
		if lock != sdk.LockHeld {
			r.Served = 0
		}
	})
	return was
}

// awaits reports whether the lock is awaited, or something that was sent is not written since.
func (s *status) awaits() (yes bool) {
	s.tell(func(r *sdk.Report) {
		yes = r.Lock == sdk.LockAwaited || r.Lock == sdk.LockHeld && s.received > r.Served
	})
	return yes
}

// took notes that a revision was received, and served unless it was planned.
func (s *status) took(revision uint64, planned bool) {
	s.tell(func(r *sdk.Report) {
		s.received, r.Unserved = revision, nil
		if !planned {
			r.Served = revision
		}
	})
}

// wrote notes that all that was received is served, but for what failed.
func (s *status) wrote(failed []sdk.Failure) {
	s.tell(func(r *sdk.Report) { r.Served, r.Unserved = s.received, failed })
}

// Report says how the dataplane is doing. It waits for nothing.
func (p *plugin) Report() sdk.Report {
	var now sdk.Report
	p.status.tell(func(r *sdk.Report) { now = *r })
	return now
}
