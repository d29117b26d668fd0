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
	"github.com/pointsman/pointsman/plugins/internal/reconcile"
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
	portals *relay.Redirected
	rules   *familyRules

	bound  netip.Addr        // where the sockets of UDP stand
	fresh  map[sdk.Name]bool // of UDP: flows that the kernel remembers do not all lead to their sockets
	asked  bool              // what the process before this one has left
	probed bool              // what the kernel can match
	former relay.Ports       // of that process; connections may still be sent there
}

func newRedirected(p *process, tool iptables.Tool) *redirected {
	r := &redirected{
		sockets: newSockets(p, tool.Family), portals: p.relay.NewRedirected(iptables.Unspecified(tool.Family)),
		rules: newFamilyRules(tool), fresh: make(map[sdk.Name]bool),
	}
	r.listen = r.listenFor
	r.forget()
	return r
}

// everywhere stands for the addresses that take node ports: which those are, the
// rules say.
var everywhere = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// Masquerade is the hold on the chains that all dataplanes share.
func (r *redirected) Masquerade() *masquerade.Hold { return r.rules.Masquerade }

// Tell names chains that iptables cannot print.
func (r *redirected) Tell(report *sdk.Report) {
	report.Notes = append(report.Notes, r.rules.Notes()...)
}

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
	r.compareAll()
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
		r.portals.Prefer(r.former)
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
	of.node, of.nodePorts, of.to = r.machine.node, r.machine.takes, r.machine.target(r.family, of.to)
	r.relay.SetMark(of.mark())
	for name := range r.Pieces() { // whose rules depend on the node
		r.changed[name] = true
	}
	return nil
}

// Role is the part that the jumps are to play.
func (r *redirected) Role(role sdk.Role) error {
	r.role = role
	return nil
}

// Want is the places of a Service. A node port has one for all addresses.
func (r *redirected) Want(svc sdk.Service) (*desired, error) { return r.want(svc, everywhere) }

// Plan is which sockets are opened and closed, and then what the tables lack.
func (r *redirected) Plan() frame.Plan {
	r.rebind()
	return &redirectedPlan{Plan: r.claims.Plan(), r: r}
}

// A redirectedPlan has its part of rules made when it is applied: they follow the sockets, and these the address where
// they stand.
type redirectedPlan struct {
	reconcile.Plan[*desired, spot, *claim] // RemovedUDP tells the sockets that it closes
	r                                      *redirected
	rules                                  []string // the steps of that part, once it is made
}

// Steps are those of the rules, and those of the sockets.
func (p *redirectedPlan) Steps() []string { return append(p.rules, p.Plan.Steps()...) }

// Apply opens sockets, writes the rules that lead to them, and closes others. A line that
// the kernel does not take keeps out all that are written with it: then no socket closes.
func (p *redirectedPlan) Apply(ctx context.Context) ([]sdk.Failure, error) {
	failed, err := p.r.settle(ctx, p.Plan)
	if err != nil {
		return nil, err
	}
	plan := p.r.planRules()
	p.rules = plan.Steps()
	if _, err := plan.Apply(ctx); err != nil { // it names the Services of refused lines
		return nil, err
	}
	p.r.finish()
	return failed, nil
}

// rebind closes the sockets of UDP when packets are sent to another address from now on. The next plan opens them there.
func (r *redirected) rebind() {
	if r.bound == r.rules.node.to {
		return
	}
	r.bound = r.rules.node.to
	for p, socket := range r.open {
		if p.protocol == sdk.UDP {
			delete(r.open, p)
			socket.Close()
			r.owed[p], r.retry = nil, true
		}
	}
}

func (r *redirected) listenFor(ctx context.Context, c *claim) (relay.Socket, error) {
	if c.place.protocol == sdk.TCP {
		return r.portals.ListenTCP(ctx, c.place.addr)
	}
	return r.listenUDP(ctx, c)
}

// listenUDP opens the socket of a place at the port to which the kernel leads its clients, so that their flows go on when
// a process before this one was killed. Another process may still have that port: then, and where no rule leads anywhere,
// it is a new port.
func (r *redirected) listenUDP(ctx context.Context, c *claim) (relay.Socket, error) {
	if at := r.udpLedTo(c); at.Addr() == r.bound && relay.Probe(ctx, sdk.UDP, at) == nil {
		if s, err := r.portals.ListenUDP(ctx, c.place.addr, at); err == nil {
			return s, nil
		}
	}
	r.fresh[c.name] = true
	return r.portals.ListenUDP(ctx, c.place.addr, netip.AddrPortFrom(r.bound, 0))
}

// udpLedTo returns where rules lead the clients of a UDP place of a Service; zero: nowhere.
func (r *redirected) udpLedTo(c *claim) (at netip.AddrPort) {
	piece := r.rules.Installed()[c.name]
	e := catch{service: &sdk.Service{Name: c.name}, frontend: *c.frontend}.entry(leadsPortal, leadsPort, "")
	rule, _ := piece.Entry(e.In, e.Key)
	own, _ := piece.Chain(nat(ownChain(c.place)))
	if _, to, led := strings.Cut(string(rule)+"\n"+own, "--to-destination "); led {
		to, _, _ = strings.Cut(to, "\n")
		at, _ = netip.ParseAddrPort(to) // zero, if it is none
	}
	return at
}

// planRules is what the tables lack, for the sockets that are open now, of the Services that changed.
func (r *redirected) planRules() frame.Plan {
	pieces := make(map[sdk.Name]rules.Piece)
	for name := range r.changed {
		r.step()
		pieces[name] = r.piece(name)
	}
	r.rules.SetDesired(pieces)
	r.rules.node.doors = r.portals.Ports()
	r.rules.follow(r.role)
	return r.rules.Plan()
}

// piece is the rules of a Service, and what accepts health checks.
func (r *redirected) piece(name sdk.Name) rules.Piece {
	d := r.seen(name)
	if d == nil {
		return rules.Piece{}
	}
	var all frontendRules
	for i := range d.claims {
		at := r.rulesFor(&d.claims[i])
		all.chains, all.entries = append(all.chains, at.chains...), append(all.entries, at.entries...)
	}
	if port := d.service.HealthPort; port != 0 {
		all.entries = append(all.entries, health(port))
	}
	return rules.NewPiece(all.chains, all.entries)
}

// rulesFor is what the frontend of a claim needs.
func (r *redirected) rulesFor(c *claim) frontendRules {
	at := catch{node: &r.rules.node, service: r.seen(c.name).service, frontend: *c.frontend}
	if socket := r.open[c.place]; socket != nil && c.place.protocol == sdk.UDP {
		at.udp = socket.Port()
	}
	return at.rules()
}

// Probe looks at what nft's kernel told, and at the sizes of legacy's tables; and now and
// then at the machine's addresses, and at what a process before this one has left.
func (r *redirected) Probe(ctx context.Context) frame.Finding {
	r.rules.Look(ctx)
	found := r.doubted()
	if !r.due() {
		return found
	}
	to := r.rules.node.to
	uplinks, err := flows.Uplinks(r.family)
	rerouted := err == nil && !slices.EqualFunc(uplinks, r.rules.node.uplinks, flows.Uplink.Equal)
	found.Moved = rerouted || r.moved(func(now *machine) bool {
		return !slices.Equal(now.takes, r.machine.takes) || now.target(r.family, to) != to
	})
	found.Due = r.retry
	found.Stale = found.Moved || found.Due
	r.forgetFormer(ctx)
	return found
}

// Audit reads one chain, or asks for one jump.
func (r *redirected) Audit(ctx context.Context) frame.Finding {
	r.rules.Audit(ctx)
	return r.doubted()
}

func (r *redirected) doubted() frame.Finding {
	if why := r.rules.Doubt(); why != "" {
		return frame.Finding{Lost: frame.All, Why: why}
	}
	return frame.Finding{Unsure: r.rules.Waits()}
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
	r.portals.Close()
}
