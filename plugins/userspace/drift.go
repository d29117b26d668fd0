// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// This file notices when somebody else takes away rules of ours. On nft the kernel
// tells who deletes what; on legacy the sizes of the tables say that something has
// changed. Both cost nothing while nothing does. Whatever they say, all rules are
// read again every few minutes.

const auditPeriod = 5 * time.Minute

// An ear hears what happens to nft's tables.
type ear struct {
	events  *iptables.Events // nil: there is nothing to hear
	running sync.WaitGroup

	mu     sync.Mutex // guards what follows
	ours   []int      // programs that we ran last
	doubts map[sdk.Family]string
	asks   map[sdk.Family][]lost // where our jumps may have gone
	shared map[sdk.Family]bool   // whether what all dataplanes share may lack something
}

// A lost is a chain of others that lost something, and by whom.
type lost struct {
	id iptables.ID
	by string
}

// remembered is how many programs of ours are told apart from others: more than
// run while an event of the first is on its way.
const remembered = 64

func newEar(b iptables.Backend) (*ear, error) {
	e := &ear{doubts: make(map[sdk.Family]string), asks: make(map[sdk.Family][]lost), shared: make(map[sdk.Family]bool)}
	if b != iptables.NFT {
		return e, nil
	}
	var err error
	if e.events, err = iptables.Listen(); err != nil {
		return e, err
	}
	e.events.Matters = func(g iptables.Gone) bool {
		return masquerade.Concerns(g.ID) || g.ID.Chain == "" || isOurs(g.ID) || slices.Contains(entrances, g.ID)
	}
	e.running.Go(e.listen) // ends with close
	return e, nil
}

func (e *ear) close() {
	if e.events != nil {
		_ = e.events.Close() // nothing was written to it
	}
	e.running.Wait()
}

// started notes a program of ours.
func (e *ear) started(pid int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ours = append(e.ours, pid)
	if len(e.ours) > remembered {
		e.ours = e.ours[1:]
	}
}

func (e *ear) listen() {
	for {
		c, err := e.events.Next()
		if err != nil {
			return
		}
		e.hear(c)
	}
}

// hear doubts the rules of a family if somebody took away what is ours. In a chain of
// others it may have been theirs.
func (e *ear) hear(c iptables.Commit) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.ours, int(c.Port)) {
		return
	}
	if c.Missed {
		for _, f := range families {
			e.doubts[f] = "more was changed than the kernel could tell"
			e.shared[f] = true
		}
	}
	for _, gone := range c.Gone {
		e.shared[gone.Family] = e.shared[gone.Family] || masquerade.Concerns(gone.ID)
		if id := gone.ID; slices.Contains(entrances, id) {
			e.asks[gone.Family] = append(e.asks[gone.Family], lost{id, c.Program})
		} else if id.Chain == "" || isOurs(id) {
			e.doubts[gone.Family] = c.Program + " deleted from " + id.String()
		}
	}
}

// entrances are the chains of others in which we have jumps.
var entrances = []iptables.ID{
	nat("PREROUTING"), nat("OUTPUT"), filter("INPUT"), filter("FORWARD"), filter("OUTPUT"),
}

// doubt is why the rules of a family should be read; empty: no reason.
func (e *ear) doubt(f sdk.Family) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	why := e.doubts[f]
	delete(e.doubts, f)
	return why
}

// sharedLost reports whether what all dataplanes share may lack something since this was last
// called.
func (e *ear) sharedLost(f sdk.Family) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	lost := e.shared[f]
	delete(e.shared, f)
	return lost
}

// asked are the chains of others that lost something since this was last called.
func (e *ear) asked(f sdk.Family) []lost {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := e.asks[f]
	delete(e.asks, f)
	return all
}

// ask looks whether our jumps are where they should be in role, in the chains that lost
// something; empty: they are.
func (s *side) ask(ctx context.Context, role sdk.Role, chains []lost) (why string) {
	rules := make(map[iptables.ID][]iptables.Rule)
	for _, l := range chains {
		if _, known := rules[l.id]; known {
			continue
		}
		there, _, err := s.tool.List(ctx, l.id)
		rules[l.id] = there
		for _, j := range s.book.frame.jumps(role) {
			if j.At == l.id && (err != nil || !slices.Contains(there, j.Rule)) {
				return l.by + " deleted from " + l.id.String()
			}
		}
	}
	return ""
}

// measure notes how big legacy's tables are now.
func (s *side) measure() {
	s.sizes = [2]iptables.Size{}
	if s.tool.Backend != iptables.Legacy {
		return
	}
	s.sizes = s.sizesNow()
}

func (s *side) sizesNow() (now [2]iptables.Size) {
	for i, table := range []string{"nat", "filter"} {
		now[i], _ = iptables.TableSize(s.book.frame.family, table) // one that is not there has none
	}
	return now
}

// lacks says what of ours legacy's tables have lost, if they have another size than
// after the last look; empty: nothing.
func (s *side) lacks(role sdk.Role) string {
	if s.tool.Backend != iptables.Legacy {
		return ""
	}
	now := s.sizesNow()
	for i, table := range []string{"nat", "filter"} {
		if now[i] == s.sizes[i] {
			continue
		}
		s.masq.Doubt()
		if why := iptables.Lost(s.book.frame.family, table, s.sizes[i], now[i], s.book.have, s.book.frame.jumps(role)); why != "" {
			return why
		}
	}
	s.sizes = now
	return ""
}

// patrol puts back what somebody took away, unless it was another process of ours
// that cleaned up.
func (r *rules) patrol(ctx context.Context, role sdk.Role) (cleaned bool) {
	if r.lock == nil {
		return false
	}
	audit := time.Since(r.audited) > auditPeriod
	if audit {
		r.audited = time.Now()
	}
	for _, s := range r.sides {
		why, asked := r.ear.doubt(s.book.frame.family), r.ear.asked(s.book.frame.family)
		if why == "" && s.known {
			why = s.ask(ctx, role, asked)
		}
		switch {
		case !s.known:
			continue // the next write reads everything anyway
		case why != "":
		case audit:
			why = "an audit"
		default:
			why = s.lacks(role)
		}
		if r.ear.sharedLost(s.book.frame.family) {
			s.masq.Doubt()
		}
		if why == "" && !s.masq.Doubted() {
			continue
		}
		if r.cleaned.Left() {
			return true
		}
		r.mend(ctx, s)
		if why != "" {
			r.repair(ctx, s, role, why)
		}
	}
	return false
}

// mend puts back what somebody took away of what all dataplanes share.
func (r *rules) mend(ctx context.Context, s *side) {
	missing, err := s.masq.Mend(ctx)
	log := r.status.log.Load()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		log.Warn("cannot put back what somebody took away", "family", s.book.frame.family, "err", err)
	case len(missing) > 0:
		r.status.repaired.Add(1)
		log.Warn("put back what somebody took away", "family", s.book.frame.family, "steps", len(missing), "first", missing[0])
	}
}

// repair reads what one family's tables have, and writes what differs.
func (r *rules) repair(ctx context.Context, s *side, role sdk.Role, why string) {
	s.known = false
	missing, err := s.write(ctx, role)
	log := r.status.log.Load()
	switch {
	case ctx.Err() != nil: // whoever ended it begins with a reading
	case err != nil:
		log.Warn("cannot put back what somebody took away", "family", s.book.frame.family, "why", why, "err", err)
	case len(missing) > 0:
		r.status.repaired.Add(1)
		log.Warn("put back what somebody took away", "family", s.book.frame.family, "why", why, "steps", len(missing), "first", missing[0])
	}
}
