// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// A watch notices, while this process is the writer, when somebody else takes away
// what it wrote, and puts it back:
//
//	nft     the kernel tells of each commit; only what others deleted is looked at
//	legacy  the sizes of the tables; when one is another, the jumps, and all if it shrank
//	both    one chain at a time is read and compared, slowly, whatever seems to be the case
//
// It has a goroutine, which stop ends, and that of its monitor.
type watch struct {
	plugin  *plugin
	end     context.CancelFunc
	running sync.WaitGroup
	monitor *ruleset.Monitor // nil: the backend tells nothing
}

// writes is told of each program that writes for us, so that it is not heard.
func (p *plugin) writes(pid int) {
	if p.watch != nil {
		p.watch.monitor.Started(pid)
	}
}

// wrote is told when it has ended.
func (p *plugin) wrote() {
	if p.watch != nil {
		p.watch.monitor.Ended()
	}
}

func (p *plugin) startWatch() *watch {
	ctx, end := context.WithCancel(context.Background())
	w := &watch{plugin: p, end: end}
	if len(p.sides) > 0 && p.sides[0].Tool.Backend == iptables.NFT {
		var err error
		w.monitor, err = ruleset.Listen(func(g iptables.Gone) bool { return ruleset.Matters(g, isOurs) })
		if err != nil {
			p.log.Warn("cannot hear who changes the tables", "err", err)
		}
	}
	w.running.Go(func() { w.look(ctx) })
	return w
}

// stop ends the watch, and a repair that is going on.
func (w *watch) stop() {
	w.quit()
	w.running.Wait()
	w.monitor.Close()
}

// quit tells both goroutines to end.
func (w *watch) quit() {
	w.end()
	w.monitor.Stop()
}

// look goes round until ctx ends.
func (w *watch) look(ctx context.Context) {
	tick := time.NewTicker(ruleset.LookEvery)
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
		w.plugin.patrol(ctx, w.monitor.Take())
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
		if !s.Known() || !s.Complete() {
			continue // the next Sync reads everything anyway
		}
		s.lead(p.role)
		for _, c := range heard {
			s.Hear(ctx, c)
		}
		s.Glance()
		if time.Since(s.audited) >= ruleset.AuditEvery && s.Doubt() == "" {
			s.audited = time.Now()
			s.Audit(ctx)
		}
		if (s.Doubt() != "" || s.Masquerade.Doubted()) && p.cleanedMark().Left() {
			p.standDown()
			return
		}
		p.mend(ctx, s)
		if s.Doubt() != "" {
			p.repair(ctx, s)
		}
	}
	if p.role == sdk.Draining {
		p.countFlows()
	}
}

// mend puts back what somebody took away of the chains that all dataplanes share.
func (p *plugin) mend(ctx context.Context, s *side) {
	steps, err := s.Masquerade.Mend(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.log.Warn("cannot put back what somebody took away", "family", s.Family(), "err", err)
	case len(steps) > 0:
		p.log.Warn("put back what somebody took away", "family", s.Family(), "steps", len(steps), "first", steps[0])
		p.status.Tell(func(r *sdk.Report) { r.Repaired++ })
		p.publish()
	}
}

// repair makes a side say what it should, from a fresh reading.
func (p *plugin) repair(ctx context.Context, s *side) {
	why := s.Doubt()
	p.status.Step()
	plan, err := s.Repair(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil:
		p.log.Warn("cannot put back what somebody took away", "family", s.Family(), "why", why, "err", err)
	case len(plan) > 0:
		steps := plan.Steps()
		p.log.Warn("put back what somebody took away", "family", s.Family(), "why", why, "steps", len(steps), "first", steps[0])
		p.status.Tell(func(r *sdk.Report) { r.Repaired++ })
		p.publish()
	}
}
