// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
)

// matters reports whether a loss may be one of ours: a chain of ours, one in which we
// have jumps, or a whole table. Another proxy that goes takes thousands of others along.
func matters(g iptables.Gone) bool {
	id := g.ID
	return masquerade.Concerns(id) || (id.Table == "nat" || id.Table == "filter") && (id.Chain == "" || isOurs(id.Chain) || slices.Contains(entrances, id.Chain))
}

// entrances are the chains of others in which we have jumps.
var entrances = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// weigh doubts the tables if c, which somebody else did, took away what is ours.
func (s *side) weigh(ctx context.Context, c iptables.Commit, jumps []iptables.Jump) {
	if c.Missed {
		s.doubt = "more was changed than the kernel could tell"
		s.masq.Doubt()
		return
	}
	for _, gone := range c.Gone {
		if gone.Family == s.book.ground.family && masquerade.Concerns(gone.ID) {
			s.masq.Doubt()
		}
		if gone.Family != s.book.ground.family || s.doubt != "" {
			continue
		}
		switch id := gone.ID; {
		case id.Chain == "" && (id.Table == "nat" || id.Table == "filter"):
			s.doubt = fmt.Sprintf("%s deleted the table %s", c.Program, id.Table)
		case (id.Table == "nat" || id.Table == "filter") && isOurs(id.Chain):
			s.doubt = fmt.Sprintf("%s deleted from %s", c.Program, id)
		default:
			s.ask(ctx, id, jumps, c.Program)
		}
	}
}

// ask looks whether the jumps that should be at id are there.
func (s *side) ask(ctx context.Context, id iptables.ID, jumps []iptables.Jump, who string) {
	if !slices.ContainsFunc(jumps, func(j iptables.Jump) bool { return j.At == id }) {
		return
	}
	rules, _, err := s.tool.List(ctx, id)
	for _, j := range jumps {
		if err == nil && j.At == id && !slices.Contains(rules, j.Rule) {
			s.doubt = fmt.Sprintf("%s deleted a jump from %s", who, id)
		}
	}
}

// glance asks the kernel, on legacy, how big the tables are.
func (s *side) glance(jumps []iptables.Jump) {
	if s.tool.Backend != iptables.Legacy {
		return
	}
	for _, table := range []string{"nat", "filter"} {
		if size, err := iptables.TableSize(s.book.ground.family, table); err == nil {
			s.compare(table, size, jumps)
		}
	}
}

// compare looks closer when a table has another size, once it keeps that: somebody may
// have taken away what is ours. What is doubted already is read again, whole.
func (s *side) compare(table string, now iptables.Size, jumps []iptables.Jump) {
	was := s.sizes[table]
	if now == was.ours || s.doubt != "" {
		return
	}
	if was.looks++; now != was.seen && was.looks < patience {
		was.seen = now
		s.sizes[table] = was
		return // somebody is at it
	}
	s.masq.Doubt()
	s.doubt = iptables.Lost(s.book.ground.family, table, was.ours, now, s.book.have, jumps)
	s.sizes[table] = sized{ours: now, seen: now}
}

// sized is how big one of legacy's tables is.
type sized struct {
	ours  iptables.Size // as we left it
	seen  iptables.Size // when it was looked at last
	looks int           // how often it was another than ours
}

// measure notes how big the tables are once they say what they should.
func (s *side) measure() {
	if s.tool.Backend != iptables.Legacy {
		return
	}
	for _, table := range []string{"nat", "filter"} {
		if size, err := iptables.TableSize(s.book.ground.family, table); err == nil {
			s.sizes[table] = sized{ours: size, seen: size}
		}
	}
}

// audit reads one chain of ours, or asks for one jump, and compares. It goes
// through all of them, one each ten seconds.
func (s *side) audit(ctx context.Context, jumps []iptables.Jump) {
	if time.Since(s.audited) < auditEvery || s.doubt != "" {
		return
	}
	s.audited = time.Now()
	if len(s.agenda) == 0 {
		s.agenda = s.book.agenda(jumps)
	}
	if len(s.agenda) == 0 {
		return
	}
	next := s.agenda[0]
	s.agenda = s.agenda[1:]
	if next.Rule != "" {
		if there, err := s.tool.Exists(next.At, next.Rule); err == nil && !there && slices.Contains(jumps, next) {
			s.doubt = fmt.Sprintf("a jump is missing from %s", next.At)
		}
		return
	}
	want, ours := s.book.have[next.At]
	rules, there, err := s.tool.List(ctx, next.At)
	if err == nil && ours && (!there || iptables.Join(rules) != want) {
		s.doubt = fmt.Sprintf("%s is not as it was written", next.At)
	}
}

// agenda is what an audit goes through: the jumps, and chains as jumps without a
// rule.
func (b *book) agenda(jumps []iptables.Jump) []iptables.Jump {
	all := make([]iptables.Jump, 0, len(jumps)+len(b.have))
	for id := range b.have {
		all = append(all, iptables.Jump{At: id})
	}
	slices.SortFunc(all, iptables.Jump.Compare)
	return append(slices.Clone(jumps), all...)
}

// repair reads everything and writes what differs. The plan says what did.
func (s *side) repair(ctx context.Context, jumps []iptables.Jump) (plan, error) {
	if _, err := s.read(ctx); err != nil {
		return nil, err
	}
	if err := s.share(ctx); err != nil {
		return nil, err
	}
	p := s.book.plan(s.book.put(nil), jumps)
	if err := s.write(ctx, p); err != nil {
		return nil, err
	}
	s.settled()
	return p, nil
}
