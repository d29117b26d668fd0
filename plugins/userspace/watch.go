// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
)

// listen begins to hear what others remove, where the backend tells it.
func (r *rules) listen(backend iptables.Backend) {
	if backend != iptables.NFT {
		return
	}
	var err error
	r.monitor, err = ruleset.Listen(func(g iptables.Gone) bool { return ruleset.Matters(g, isOurs) })
	if err != nil {
		r.status.log.Load().Warn("cannot hear who changes the tables", "err", err)
	}
}

// patrol puts back what another process removed, unless that was one of ours that cleaned
// up.
func (r *rules) patrol(ctx context.Context) (cleaned bool) {
	if r.lock == nil {
		return false
	}
	heard := r.monitor.Take()
	audit := time.Since(r.audited) >= ruleset.AuditEvery
	if audit {
		r.audited = time.Now()
	}
	for _, s := range r.sides {
		if !s.Known() {
			continue // the next write reads everything anyway
		}
		for _, c := range heard {
			s.Hear(ctx, c)
		}
		s.Glance()
		if audit {
			s.Audit(ctx)
		}
		if s.Doubt() == "" && !s.Masquerade.Doubted() {
			continue
		}
		if r.cleaned.Left() {
			return true
		}
		steps, err := s.Masquerade.Mend(ctx)
		r.tell(ctx, s, "it belongs to all dataplanes", steps, err)
		if why := s.Doubt(); why != "" {
			written, err := s.Repair(ctx)
			r.tell(ctx, s, why, written.Steps(), err)
		}
	}
	return false
}

// tell logs what putting something back came to.
func (r *rules) tell(ctx context.Context, s *side, why string, steps []string, err error) {
	log := r.status.log.Load()
	switch {
	case ctx.Err() != nil: // a call ended it, and begins with a reading
	case err != nil:
		log.Warn("cannot put back what somebody took away", "family", s.Family(), "why", why, "err", err)
	case len(steps) > 0:
		r.status.repaired.Add(1)
		log.Warn("put back what somebody took away", "family", s.Family(), "why", why, "steps", len(steps), "first", steps[0])
	}
}
