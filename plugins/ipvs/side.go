// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A side is one family: its book, and what makes the kernel follow it.
type side struct {
	host   *host
	book   *book
	rules  ruler
	kernel kernel
	masq   *masquerade.Hold // on what all dataplanes share

	afresh bool      // everything was read since IPVS was told of the node
	moved  bool      // the node's addresses are others than Services were rendered for
	probed time.Time // when the kernel was last asked for what may have been taken away,
	reaped time.Time // when reals that have had their last connection were removed,
	calmed time.Time // and when what is due more often was done
	audits int

	// seen is what the last probe found in the tables, if that is to be repaired.
	seen iptables.Tables

	// extra is by how many entries a set of the kernel differs from what we know of
	// it, right after it was read and written; weighs says that it was read.
	extra  map[set]int
	weighs bool
}

var _ interface {
	frame.Family[piece]
	frame.Divider[piece]
	frame.Drainer
	frame.Forgetter
	frame.Sampler
	frame.Masquerader
} = (*side)(nil)

func newSide(family sdk.Family, r ruler, h *host) *side {
	return &side{host: h, book: newBook(family), rules: r, kernel: h.kernel, extra: make(map[set]int)}
}

// Serves reports whether of is the side's family.
func (s *side) Serves(of sdk.Family) bool { return of == s.book.ground.family }

// Masquerade is the hold on the chains that all dataplanes share.
func (s *side) Masquerade() *masquerade.Hold { return s.masq }

// Hold hands the lock to whatever writes.
func (s *side) Hold(lock *ledger.Lock) {
	s.seen = nil // it is of before
	s.host.hold(lock)
	s.rules.hold(lock, s.host.env)
}

// Adopt reads parts of what the kernel has.
func (s *side) Adopt(ctx context.Context, which frame.Parts) (sdk.Role, error) {
	s.host.adopts(1)
	defer s.host.adopts(-1)
	if which == frame.All {
		s.seen = nil
	}
	read := parts(which)
	seen, err := s.look(ctx, read)
	s.seen = nil
	if err != nil {
		return 0, err
	}
	s.weighs = which != frame.All && read.has(inSets)
	if read.has(inRules(s.book.ground.family)) {
		s.masq.Doubt()
	}
	role := s.book.adopt(seen, read, s.host.options.ExcludeCIDRs)
	s.afresh = s.afresh || which == frame.All
	s.moved = s.moved || !slices.Equal(s.nodePortAddrs(s.book.ground.node), s.book.ground.addrs)
	return role, nil
}

// look reads parts of what the kernel has.
func (s *side) look(ctx context.Context, read parts) (v sight, err error) {
	family, since := s.book.ground.family, time.Now()
	if read.has(inRules(family)) {
		if v.tables, err = s.saved(ctx); err != nil {
			return v, fmt.Errorf("read %s tables: %w", family, err)
		}
	}
	all, err := s.host.look(ctx, read&(inServers|inSets|inAddrs), since)
	if err != nil {
		return v, err
	}
	v.servers, v.sets, v.addrs = all.servers, all.sets[family], all.addrs.of(family)
	return v, nil
}

// Node takes what the host says of the node, and what addresses it has.
func (s *side) Node(n sdk.Node) error {
	if s.moved {
		addrs, err := s.kernel.Addrs()
		if err != nil {
			return err
		}
		s.book.adopt(sight{addrs: addrs.of(s.book.ground.family)}, inAddrs, nil)
		s.moved = false
	}
	if s.afresh || !n.Equal(s.book.ground.node) { // else only addresses are others
		if err := s.host.prepare(s); err != nil {
			return err
		}
		s.afresh = false
	}
	s.book.setGround(ground{family: s.book.ground.family, node: n, addrs: s.nodePortAddrs(n), scheduler: s.host.options.Scheduler})
	return nil
}

// nodePortAddrs are the addresses of the node that take node ports, in order.
func (s *side) nodePortAddrs(n sdk.Node) []netip.Addr {
	var all []netip.Addr
	for addr := range s.book.have.others {
		if n.TakesNodePorts(addr) && !addr.IsLoopback() && !duty.OnLink(addr) {
			all = append(all, addr)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return all
}

// Role is what the plan is for. Standby must not take away what still has connections.
func (s *side) Role(role sdk.Role) error {
	if role == sdk.Standby {
		if _, err := s.seeBusy(); err != nil {
			return err
		}
	}
	if s.book.role != role {
		s.book.role = role
		s.book.touchAll()
	}
	return nil
}

// Want is the piece of svc, with a mark of its own if it needs one.
func (s *side) Want(svc sdk.Service) (piece, error) {
	if err := tooMany(svc); err != nil {
		return piece{}, err
	}
	var mark uint32
	if needsMark(svc) {
		mark = s.book.marks.take(svc.Name, s.book.ground)
	}
	return s.book.ground.want(svc, mark)
}

// Pieces are what Services need, as it was put.
func (s *side) Pieces() map[sdk.Name]piece { return s.book.pieces }

// Keep is what the kernel has of a Service.
func (s *side) Keep(name sdk.Name) piece { return s.book.keep(name) }

// Put says what Services need.
func (s *side) Put(pieces map[sdk.Name]piece) { s.book.put(pieces) }

// Plan is what the kernel lacks.
func (s *side) Plan() frame.Plan { return pending{s, s.book.plan()} }

// A pending plan is one that a side is to take.
type pending struct {
	side *side
	plan plan
}

// Steps are the plan for people.
func (p pending) Steps() []string { return p.plan.steps() }

// Apply takes the steps. What is said of a step of one Service is of that Service alone.
func (p pending) Apply(ctx context.Context) ([]sdk.Failure, error) {
	bad, err := p.side.write(ctx, p.plan)
	var failed []sdk.Failure
	for name, why := range bad {
		failed = append(failed, sdk.Failure{Name: name, Err: why})
	}
	if err == nil && len(bad) == 0 && p.side.weighs {
		p.side.weigh()
		p.side.weighs = false // what differs from now on somebody else did
	}
	return failed, err
}

// Forget ends UDP flows to these Services that lead nowhere.
func (s *side) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes := func(a netip.Addr) bool { return slices.Contains(s.book.ground.addrs, a) }
	return s.host.plugin.edges.forget(of, conntrack.Serving(of, services, takes).Telling(step))
}

// Samples are how much the kernel has.
func (s *side) Samples() []sdk.Sample {
	family := map[string]string{"ip_family": strings.Replace(s.book.ground.family.String(), "ip", "IP", 1)}
	return []sdk.Sample{
		{Name: "pointsman_ipvs_virtual_servers", Labels: family, Value: float64(len(s.book.have.servers))},
		{Name: "pointsman_ipvs_addresses", Labels: family, Value: float64(len(s.book.have.vips))},
	}
}
