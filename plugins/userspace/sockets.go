// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/reconcile"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// A process is what both ways of serving share.
type process struct {
	relay     *relay.Relay
	addresses func() ([]address, error) // of this machine
	log       *slog.Logger
	step      func() // says that the present call gets on
	handover  handover
	adding    *adding

	// affinity are clients of Services that are still to come, which another dataplane
	// served before.
	affinity map[sdk.Name][]sdk.AffinityEntry
}

// sockets are those of one IP family, and the Services that they are for. They are a Mode and a
// Kernel of package reconcile: its entries are the claims of Services, and the addresses that
// are added for them. The socket at a place is for the claim that names its address, or else for
// the one of a node port.
type sockets struct {
	*process
	family  sdk.Family
	machine *machine
	role    sdk.Role // that was set last
	writes  bool     // this process may open sockets, and write

	// listen opens the socket of a claim. Nil, without an error: it could be opened.
	listen func(context.Context, *claim) (relay.Socket, error)

	claims   *reconcile.Reconciler[*desired, spot, *claim]
	rivals   map[place]rivals // the claims that sockets follow
	services map[sdk.Name]served
	open     map[place]relay.Socket
	opened   []place                // of these, those that may serve nothing yet
	leaving  map[place]relay.Socket // no claim needs them, but what they have begun may
	closing  map[place]bool         // of these, those that finish will let go of
	owed     map[place]error        // wanted, and could not be opened
	changed  map[sdk.Name]bool      // since the last plan
	retry    bool                   // the next plan opens what is owed
	needed   map[netip.Addr]bool    // the addresses that are added for Services

	looked  time.Time // when the machine's addresses were read last
	expired time.Time // when affinity was forgotten last
}

// A spot is a key of the reconciler.
type spot struct {
	what    what
	place   place // of an address, that alone
	every   bool  // it is one of those that a node port stands for
	listens bool
}

// A what says what a spot is of.
type what uint8

const (
	ofAddress what = iota // that an interface is to have for Services
	ofClaim
)

// rivals are the claim that names a place's address, and the one of a node port.
type rivals [2]*claim

// owner is the claim that has the place; nil: none.
func (r rivals) owner() *claim { return cmp.Or(r[0], r[1]) }

// rank is the index among rivals.
func (k spot) rank() int {
	if k.every {
		return 1
	}
	return 0
}

// A served is a Service as connections see it.
type served struct {
	*relay.Service
	as *desired
}

func newSockets(p *process, f sdk.Family) sockets {
	return sockets{process: p, family: f, machine: newMachine(sdk.Node{}, nil)}
}

// forget is the state of a process that has served nothing.
func (s *sockets) forget() {
	s.role = 0
	s.claims = reconcile.New(socketMode{s}, socketKernel{s})
	s.claims.Name = s.family.String()
	s.rivals = make(map[place]rivals)
	s.services = make(map[sdk.Name]served)
	s.open = make(map[place]relay.Socket)
	s.leaving = make(map[place]relay.Socket)
	s.owed = make(map[place]error)
	s.changed = make(map[sdk.Name]bool)
	s.needed = make(map[netip.Addr]bool)
	s.closing = make(map[place]bool)
	s.opened, s.retry = nil, false
}

// close closes all sockets, and forgets what they served.
func (s *sockets) close() {
	for _, all := range []map[place]relay.Socket{s.open, s.leaving} {
		for _, socket := range all {
			socket.Close()
		}
	}
	s.forget()
}

// core are the sockets, whatever leads to them.
func (s *sockets) core() *sockets { return s }

// Serves reports whether f is the IP family of these sockets.
func (s *sockets) Serves(f sdk.Family) bool { return f == s.family }

// Pieces are what Services come to, as it was put.
func (s *sockets) Pieces() map[sdk.Name]*desired { return s.claims.Desired() }

// Keep is nil: nothing that serves a Service outlives the process.
func (s *sockets) Keep(sdk.Name) *desired { return nil }

// seen is what connections see of a Service; nil: there is none.
func (s *sockets) seen(name sdk.Name) *desired { return s.claims.Installed()[name] }

// Put says what Services come to.
func (s *sockets) Put(pieces map[sdk.Name]*desired) {
	for name := range pieces {
		s.changed[name] = true
	}
	s.claims.SetDesired(pieces)
}

// want is what svc comes to. One that is as it was keeps its claims.
func (s *sockets) want(svc sdk.Service, nodePorts []netip.Addr) (*desired, error) {
	d, err := want(svc, nodePorts)
	if had := s.Pieces()[svc.Name]; err == nil && d.Equal(had) {
		return had, nil
	}
	return d, err
}

// compareAll has the next plan compare the sockets with all that is desired.
func (s *sockets) compareAll() { _, _ = s.claims.List(context.Background()) } // it only reads memory

// setMachine makes m the node, for the relay too.
func (s *sockets) setMachine(m *machine) {
	s.machine = m
	s.relay.SetNode(m.node, m.own)
}

// A socketMode is sockets as a reconcile.Mode.
type socketMode struct{ *sockets }

// Entries calls add with the claims of a Service, and with the addresses that have to be added for them.
func (m socketMode) Entries(_ sdk.Name, d *desired, add func(spot, *claim)) {
	if d == nil {
		return
	}
	var added []netip.Addr
	for i := range d.claims {
		c := &d.claims[i]
		add(c.spot(), c)
		if addr := c.place.addr.Addr(); !c.every() && m.adds(addr) && !slices.Contains(added, addr) {
			added = append(added, addr)
			add(spot{what: ofAddress, place: placeOf(addr)}, nil)
		}
	}
}

// Fixed returns nothing: every entry is a Service's.
func (socketMode) Fixed(sdk.Role, map[string]bool) map[spot]*claim { return nil }

// Kind has addresses be added before sockets are opened there, and removed after they are closed.
func (socketMode) Kind(k spot) reconcile.Kind {
	if k.what == ofClaim {
		return reconcile.Kind{Add: 1, Remove: 1, Label: "sockets"}
	}
	return reconcile.Kind{Add: 0, Remove: 2, Counted: true, Label: "addresses"}
}

// Parse returns what connections see.
func (m socketMode) Parse(map[spot]*claim) (map[sdk.Name]*desired, sdk.Role) {
	return m.claims.Installed(), 0
}

// Frontend returns where a socket listens.
func (socketMode) Frontend(k spot) (sdk.Protocol, netip.AddrPort, bool) {
	return k.place.protocol, k.place.addr, k.listens
}

// A socketKernel is sockets as a reconcile.Kernel.
type socketKernel struct{ *sockets }

type batch = reconcile.Batch[spot, *claim]

// List returns the claims that sockets follow, and the addresses that were added.
func (k socketKernel) List(context.Context) (map[spot]*claim, error) {
	k.discard()
	all := make(map[spot]*claim, len(k.rivals))
	for _, r := range k.rivals {
		for _, c := range r {
			if c != nil {
				all[c.spot()] = c
			}
		}
	}
	for addr := range k.needed {
		all[spot{what: ofAddress, place: placeOf(addr)}] = nil
	}
	return all, nil
}

// Foreign returns the address that another program removed. Nothing but this process can change its sockets.
func (k socketKernel) Foreign(context.Context) (why string, unsure bool) { return k.missing(), false }

// Apply has the sockets follow claims. It opens sockets, for no Service yet, and if that fails it refuses the claims for
// which it failed, and changes nothing. What is not needed any more stays open until finish.
func (k socketKernel) Apply(ctx context.Context, b batch) (map[spot]error, error) {
	next := k.follow(b)
	if err := k.acquire(ctx, b); err != nil {
		return nil, err
	}
	refused, err := k.openAll(ctx, next)
	if err != nil || len(refused) > 0 {
		return refused, err
	}
	for _, phase := range b.Phases {
		for _, c := range phase {
			if c.New != nil {
				k.publish(k.Pieces()[c.New.name])
			} else if addr := c.Key.place.addr.Addr(); c.Key.what == ofAddress && c.Op == reconcile.Add {
				k.needed[addr] = true
			} else if c.Key.what == ofAddress {
				delete(k.needed, addr)
			}
		}
	}
	for p, r := range next {
		if k.rivals[p] = r; r == (rivals{}) {
			delete(k.rivals, p)
		}
		if c := r.owner(); c != nil && c.listens {
			k.serve(c)
			continue
		}
		delete(k.owed, p)
		if socket := k.open[p]; socket != nil && socket.Target() != nil {
			delete(k.open, p)
			k.leaving[p], k.closing[p] = socket, true
		}
	}
	k.discard()
	return nil, nil
}

// follow returns the rivals at each place that a batch changes.
func (s *sockets) follow(b batch) map[place]rivals {
	next := make(map[place]rivals)
	for _, removes := range []bool{true, false} { // first: a claim that begins to listen has another key
		for _, phase := range b.Phases {
			for _, c := range phase {
				p := c.Key.place
				if c.Key.what != ofClaim || removes != (c.New == nil) {
					continue
				}
				r, seen := next[p]
				if !seen {
					r = s.rivals[p]
				}
				if i := c.Key.rank(); c.New != nil || r[i] == c.Old {
					r[i] = c.New
				}
				next[p] = r
			}
		}
	}
	return next
}

// openAll opens the sockets that are missing, and returns the claims that it was refused for. A claim of a Service that no
// update changed, or of a node port at an address that has just gone, is owed instead.
func (s *sockets) openAll(ctx context.Context, next map[place]rivals) (refused map[spot]error, err error) {
	var missing []*claim
	for p, r := range next {
		if c := r.owner(); c != nil && c.listens && s.open[p] == nil {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 && s.role == sdk.Active {
		if err := s.handover.take(ctx); err != nil {
			s.log.Warn("the process that serves does not give its ports up", "err", err)
		}
	}
	refused = make(map[spot]error)
	for _, c := range missing {
		p := c.place
		if err := ctx.Err(); err != nil {
			s.discard()
			return nil, err
		}
		switch err := s.openAt(ctx, c); {
		case err == nil:
		case !s.edited(c.name), c.every() && notOurs(err):
			s.owed[p] = explain(p, err)
			s.log.Warn("cannot listen; trying again", "at", p.String(), "service", c.name, "err", s.owed[p])
		default:
			refused[c.spot()] = explain(p, err)
		}
	}
	return refused, nil
}

// openAt opens the socket of a claim, or one again that still finishes what it has begun.
func (s *sockets) openAt(ctx context.Context, c *claim) error {
	s.step()
	p := c.place
	delete(s.owed, p)
	if socket := s.leaving[p]; socket != nil {
		closing := s.closing[p]
		delete(s.leaving, p)
		delete(s.closing, p)
		if closing || socket.Resume() {
			s.open[p] = socket
			return nil
		}
	}
	socket, err := s.listen(ctx, c)
	if socket != nil {
		s.open[p], s.opened = socket, append(s.opened, p)
	}
	return err
}

// discard closes sockets that serve nothing.
func (s *sockets) discard() {
	for _, p := range s.opened {
		if socket := s.open[p]; socket != nil && socket.Target() == nil {
			delete(s.open, p)
			socket.Close()
		}
	}
	s.opened = nil
}

// edited reports whether an update gave the Service another value than connections see.
func (s *sockets) edited(name sdk.Name) bool {
	was, d := s.seen(name), s.Pieces()[name]
	return was == nil || d == nil || !was.service.Equal(*d.service)
}

// publish makes d what connections see from now on.
func (s *sockets) publish(d *desired) {
	svc := *d.service
	v := s.services[svc.Name]
	switch {
	case v.as == d:
		return
	case v.Service == nil:
		v.Service = relay.NewService(svc)
	default:
		v.Set(svc)
	}
	v.as = d
	s.services[svc.Name] = v
	v.ImportAffinity(s.affinity[svc.Name], time.Now())
	delete(s.affinity, svc.Name)
}

// serve gives a socket that is open to the Service of a claim.
func (s *sockets) serve(c *claim) {
	if socket := s.open[c.place]; socket != nil {
		s.step()
		socket.Serve(&relay.Target{Service: s.services[c.name].Service, Frontend: *c.frontend})
	}
}

// tryOwed opens what could not be opened before, if it is time.
func (s *sockets) tryOwed(ctx context.Context) error {
	if !s.retry {
		return nil
	}
	s.retry = false
	if err := s.ensure(ctx, s.unheld()); err != nil {
		return err
	}
	for p := range maps.Clone(s.owed) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c := s.rivals[p].owner()
		if err := s.openAt(ctx, c); err != nil {
			s.owed[p] = explain(p, err)
			continue
		}
		s.serve(c)
		s.changed[c.name] = true
	}
	return nil
}

// settle applies a plan, and has connections see what is desired. finish has to follow.
func (s *sockets) settle(ctx context.Context, p reconcile.Plan[*desired, spot, *claim]) ([]sdk.Failure, error) {
	failed, err := p.Apply(ctx)
	if err == nil {
		err = s.tryOwed(ctx)
	}
	if err != nil {
		return nil, err
	}
	for name := range s.changed {
		s.step()
		d := s.seen(name)
		if d == nil {
			continue
		}
		s.publish(d)
		if name.Protocol != sdk.UDP {
			continue
		}
		for _, c := range d.claims {
			for _, socket := range []relay.Socket{s.open[c.place], s.leaving[c.place]} {
				if socket != nil && socket.Target().Service == s.services[name].Service {
					socket.EndpointsChanged()
				}
			}
		}
	}
	return failed, nil
}

// finish closes what no Service wants, and forgets the Services that are gone.
func (s *sockets) finish() {
	for p := range s.closing {
		s.step()
		if socket := s.leaving[p]; !s.keepsFlows(socket.Target()) || !socket.Drain() {
			delete(s.leaving, p)
			socket.Close()
		}
	}
	for name := range s.changed {
		if s.seen(name) == nil {
			delete(s.services, name)
		}
	}
	s.closing, s.changed = make(map[place]bool), make(map[sdk.Name]bool) // small again: to walk a map costs its largest size
}

// keepsFlows reports whether UDP flows to a frontend whose socket closes go on until they end: its Service still
// has it, and something serves the Service.
func (s *sockets) keepsFlows(t *relay.Target) bool {
	d := s.seen(t.Service.Name())
	return d != nil && len(d.service.Reachable())+len(d.service.Serving) > 0 &&
		slices.ContainsFunc(d.service.Frontends, func(f sdk.Frontend) bool { return f.Addr == t.Frontend.Addr })
}

// due reports whether it is time to look at what no call tells: addresses that come and go,
// places that become free, clients whose time is over.
func (s *sockets) due() bool {
	now := time.Now()
	if now.Sub(s.expired) >= affinityPeriod {
		s.expired = now
		for _, service := range s.services {
			service.ExpireAffinity(now)
		}
	}
	if now.Sub(s.looked) < addressPeriod {
		return false
	}
	s.looked = now
	maps.DeleteFunc(s.leaving, func(p place, socket relay.Socket) bool { return !s.closing[p] && !socket.Drain() })
	s.retry = len(s.owed)+len(s.unheld()) > 0
	return true
}

// How often the machine's addresses are read again, and how often clients whose
// time is over are forgotten.
const (
	addressPeriod  = 2 * time.Second
	affinityPeriod = 30 * time.Second
)

// moved reads the machine's addresses. If what serves depends on those that have come or
// gone, it reports that; else only the relay has to know of them.
func (s *sockets) moved(matters func(*machine) bool) bool {
	own, err := s.addresses()
	if err != nil {
		s.log.Warn("node ports stay at the addresses known so far", "err", err)
		return false
	}
	if slices.Equal(own, s.machine.addresses) {
		return false
	}
	now := newMachine(s.machine.node, own)
	if matters(now) {
		return true
	}
	s.setMachine(now)
	return false
}

// read makes what n and the machine's addresses say the node.
func (s *sockets) read(n sdk.Node) error {
	own, err := s.addresses()
	if err != nil {
		return err
	}
	s.setMachine(newMachine(n, own))
	return nil
}

// explain makes an error of relay.Listen one that says what to do. What no retry can
// mend is a Refusal.
func explain(p place, err error) error {
	switch {
	case notOurs(err):
		try := fmt.Sprintf("ip address add %s dev lo", netip.PrefixFrom(p.addr.Addr(), p.addr.Addr().BitLen()))
		if runtime.GOOS == "windows" {
			try = "addresses: auto, among the options of userspace"
		}
		return &sdk.Refusal{Field: "frontends", Why: fmt.Sprintf("no interface of this machine has the address %s", p.addr.Addr()), Try: try}
	case errors.Is(err, relay.ErrNotAllowed):
		return &sdk.Refusal{
			Field: "frontends",
			Why:   fmt.Sprintf("this process may not listen on port %d", p.addr.Port()),
			Try:   fmt.Sprintf("sysctl net.ipv4.ip_unprivileged_port_start=%d, or give the plugin CAP_NET_BIND_SERVICE", p.addr.Port()),
		}
	case errors.Is(err, relay.ErrInUse):
		return fmt.Errorf("listen on %s: another program has it (ss -%slnp sport = :%d shows which): %w",
			p, p.protocol.String()[:1], p.addr.Port(), err)
	}
	return fmt.Errorf("listen on %s: %w", p, err)
}

// notOurs reports whether the machine lacks the address, now.
func notOurs(err error) bool { return errors.Is(err, relay.ErrNotLocal) }
