// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A redirected serves one IP family by portals: rules in the kernel redirect clients of
// every frontend, whatever its address, to few sockets at one address of this machine. The
// sockets stay in every role; only the rules lead to them.
type redirected struct {
	sockets
	portals *relay.Redirected // of both families
	rules   *familyRules

	bound  netip.Addr     // where the sockets of UDP stand
	fresh  map[place]bool // of UDP: no flow that the kernel remembers leads to their sockets
	asked  bool           // what the process before this one has left
	probed bool           // what the kernel can match
	former relay.Ports    // of that process; connections may still be sent there
}

var _ interface {
	frame.Family[*desired]
	frame.Forgetter
	frame.Masquerader
} = (*redirected)(nil)

func newRedirected(p *process, tool iptables.Tool, portals *relay.Redirected) *redirected {
	return &redirected{
		sockets: newSockets(p, tool.Family), portals: portals, rules: newFamilyRules(tool),
		fresh: make(map[place]bool),
	}
}

// everywhere stands for the addresses that take node ports: which those are, the
// rules say.
var everywhere = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// Masquerade is the hold on the chains that all dataplanes share.
func (r *redirected) Masquerade() *masquerade.Hold { return r.rules.Masquerade }

// Notes name chains that iptables cannot print.
func (r *redirected) Notes() []string { return r.rules.Notes() }

// Hold hands the lock to every program that writes.
func (r *redirected) Hold(lock *ledger.Lock) {
	r.writes = lock != nil
	r.rules.Hold(lock)
}

// Adopt reads the tables, unless no process wrote since they were last read. The writer
// also finds out what a process before this one has left: clients that are on their way
// to its ports should find this one. What the kernel can match is found out before that, while
// another process still serves.
func (r *redirected) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	if !r.rules.IsCurrent() {
		if _, err := r.rules.List(ctx); err != nil {
			return 0, err
		}
	}
	if r.writes && !r.asked {
		r.asked = true
		r.former = ledTo(func(id iptables.ID) string {
			text, _ := r.rules.Found(id)
			return text
		})
		r.portals.Prefer(r.family, r.former)
	}
	if !r.probed {
		if err := r.rules.probeSocketMatch(ctx); err != nil {
			r.log.Info("clients that call while the relay is started anew will be refused", "family", r.family, "why", err)
		}
		r.probed = ctx.Err() == nil
	}
	if shown := r.rules.ShownRole(); shown == sdk.Active || r.role != sdk.Draining {
		return shown, nil
	}
	return sdk.Draining, nil // no rule shows it
}

// Ours reports whether the tables have the chain that this dataplane always writes and kube-proxy never.
func (r *redirected) Ours() bool {
	_, there := r.rules.Found(toAny)
	return there
}

// Node takes what the host says of the node, and reads its addresses.
func (r *redirected) Node(n sdk.Node) error {
	if err := r.read(n); err != nil {
		return err
	}
	of := &r.rules.node
	if uplinks, err := flows.Uplinks(r.family); err == nil { // no Service waits for them: Probe asks again
		of.uplinks = uplinks
	}
	of.prefixes = r.machine.prefixes
	of.node, of.nodePorts, of.to = r.machine.node, r.machine.nodePorts, r.machine.target(r.family, of.to)
	r.relay.SetMark(of.mark())
	r.touchAll()
	return nil
}

// Role is the part that the jumps are to play.
func (r *redirected) Role(role sdk.Role) error {
	r.role = role
	return nil
}

// Want is the places of a Service. A node port has one for all addresses.
func (r *redirected) Want(svc sdk.Service) (*desired, error) { return want(svc, everywhere) }

// Plan is which sockets are opened and closed, and then what the tables lack.
func (r *redirected) Plan() frame.Plan { return &redirectedPlan{redirected: r} }

// A redirectedPlan is made when it is applied: the rules follow the sockets, and these the
// address where they stand.
type redirectedPlan struct {
	*redirected
	steps []string // once it is made
}

// Steps are those of the rules, and those of the sockets.
func (p *redirectedPlan) Steps() []string { return p.steps }

// Apply opens sockets, writes the rules that lead to them, and closes others. A line that
// the kernel does not take keeps out all that are written with it: then no socket closes.
func (p *redirectedPlan) Apply(ctx context.Context) ([]sdk.Failure, error) {
	p.rebind()
	steps, failed, err := p.prepare(ctx, p.plan(), p.listen)
	if err != nil {
		return nil, err
	}
	p.commit(steps)
	plan := p.planRules()
	p.steps = append(plan.Steps(), texts(steps)...)
	if _, err := plan.Apply(ctx); err != nil { // it names the Services of refused lines
		return nil, err
	}
	p.finish(steps)
	return failed, nil
}

// RemovedUDP returns the UDP frontends whose sockets the plan closes. After a crash there are none: the port
// that a flow is led to has no socket, so its datagrams are refused.
func (p *redirectedPlan) RemovedUDP() (all []netip.AddrPort) {
	for _, s := range p.plan() {
		if s.verb == closeDown && s.claim.place.protocol == sdk.UDP {
			all = append(all, s.claim.place.addr)
		}
	}
	return all
}

// rebind lets go of the sockets of UDP when packets are sent to another address from now on.
func (r *redirected) rebind() {
	if r.bound == r.rules.node.to {
		return
	}
	r.bound = r.rules.node.to
	for p, socket := range r.open {
		if p.protocol == sdk.UDP {
			delete(r.open, p)
			socket.Close()
		}
	}
}

func (r *redirected) listen(ctx context.Context, p place) (err error) {
	if r.resume(p) {
		return nil
	}
	var s relay.Socket
	if p.protocol == sdk.UDP {
		s, err = r.listenUDP(ctx, p)
	} else {
		s, err = r.portals.ListenTCP(ctx, p.addr)
	}
	if err == nil {
		r.open[p] = s
	}
	return err
}

// listenUDP opens the socket of a place at the port to which the kernel leads its clients, so that their flows go on when
// a process before this one was killed. Another process may still have that port: then, and where no rule leads anywhere,
// it is a new port.
func (r *redirected) listenUDP(ctx context.Context, p place) (relay.Socket, error) {
	if c, owned := r.table.owner(p); owned {
		if at := r.udpLedTo(c.name, p); at.Addr() == r.bound && relay.Probe(ctx, sdk.UDP, at) == nil {
			if s, err := r.portals.ListenUDP(ctx, p.addr, at); err == nil {
				return s, nil
			}
		}
	}
	r.fresh[p] = true
	return r.portals.ListenUDP(ctx, p.addr, netip.AddrPortFrom(r.bound, 0))
}

// udpLedTo returns where rules lead the clients of a UDP place of a Service; zero: nowhere.
func (r *redirected) udpLedTo(name sdk.Name, p place) (at netip.AddrPort) {
	piece := r.rules.Installed()[name]
	e := catch{service: &sdk.Service{Name: name}, frontend: sdk.Frontend{Addr: p.addr}}.entry(leadsPortal, leadsPort, "")
	rule, _ := piece.Entry(e.In, e.Key)
	own, _ := piece.Chain(nat(ownChain(p)))
	if _, to, led := strings.Cut(string(rule)+"\n"+own, "--to-destination "); led {
		to, _, _ = strings.Cut(to, "\n")
		at, _ = netip.ParseAddrPort(to) // zero, if it is none
	}
	return at
}

// planRules is what the tables lack, for the sockets that are open now: of the Services that changed, and of those that
// claim a place that was touched.
func (r *redirected) planRules() frame.Plan {
	pieces := make(map[sdk.Name]rules.Piece)
	add := func(name sdk.Name) {
		if _, done := pieces[name]; !done {
			r.step()
			pieces[name] = r.piece(name)
		}
	}
	for name := range r.changed {
		add(name)
	}
	for p := range r.touched {
		for _, c := range r.table.places[p] {
			add(c.name)
		}
	}
	r.rules.SetDesired(pieces)
	r.rules.node.doors = r.portals.Ports(r.family)
	r.rules.follow(r.role)
	return r.rules.Plan()
}

// piece is the rules of a Service: those of the places that it has, and what accepts health checks.
func (r *redirected) piece(name sdk.Name) rules.Piece {
	d := r.table.desired[name]
	if d == nil {
		return rules.Piece{}
	}
	var all frontendRules
	for _, c := range d.claims {
		if has, _ := r.table.owner(c.place); has.name == name {
			at := r.rulesFor(c.place)
			all.chains, all.entries = append(all.chains, at.chains...), append(all.entries, at.entries...)
		}
	}
	if port := d.service.HealthPort; port != 0 {
		all.entries = append(all.entries, health(port))
	}
	return rules.NewPiece(all.chains, all.entries)
}

// rulesFor is what the frontend at p needs.
func (r *redirected) rulesFor(p place) frontendRules {
	c, owned := r.table.owner(p)
	if !owned {
		return frontendRules{}
	}
	at := catch{node: &r.rules.node, service: r.table.desired[c.name].service, frontend: *c.frontend}
	if socket := r.open[p]; socket != nil && p.protocol == sdk.UDP {
		at.udp = socket.Port()
	}
	return at.rules()
}

// Probe looks at what nft's kernel told, and at the sizes of legacy's tables; and now and
// then at the machine's addresses, and at what a process before this one has left.
func (r *redirected) Probe(ctx context.Context) (found frame.Finding) {
	if r.due() {
		to := r.rules.node.to
		uplinks, err := flows.Uplinks(r.family)
		rerouted := err == nil && !slices.EqualFunc(uplinks, r.rules.node.uplinks, flows.Uplink.Equal)
		found.Moved = rerouted || r.moved(func(now *machine) bool {
			return !slices.Equal(now.nodePorts, r.machine.nodePorts) || !slices.Equal(now.prefixes, r.machine.prefixes) || now.target(r.family, to) != to
		})
		found.Due = r.again()
		found.Stale = found.Moved || r.owesUDP()
		r.forgetFormer(ctx)
	}
	r.rules.Look(ctx)
	found.Lost, found.Why, found.Unsure = r.doubted()
	return found
}

// Audit reads one chain, or asks for one jump.
func (r *redirected) Audit(ctx context.Context) (found frame.Finding) {
	r.rules.Audit(ctx)
	found.Lost, found.Why, found.Unsure = r.doubted()
	return found
}

func (r *redirected) doubted() (lost frame.Parts, why string, unsure bool) {
	if why := r.rules.Doubt(); why != "" {
		return frame.All, why, false
	}
	return 0, "", r.rules.Waits()
}

// close closes the sockets, and wants no rules.
func (r *redirected) close() {
	none := make(map[sdk.Name]rules.Piece)
	for name := range r.rules.Desired() {
		none[name] = rules.Piece{}
	}
	r.rules.SetDesired(none)
	clear(r.fresh)
	r.asked, r.former = false, relay.Ports{}
	r.sockets.close()
}
