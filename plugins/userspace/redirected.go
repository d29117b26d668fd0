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

// A redirected serves one IP family by rules in the kernel, which redirect packets to frontends at any address to sockets at
// one address of this machine. All TCP frontends share three sockets. The sockets exist in every role.
type redirected struct {
	sockets
	portals *relay.Redirected
	rules   *familyRules

	bound  netip.Addr        // address of the UDP sockets
	moved  map[sdk.Name]bool // UDP Services with a socket at a new port, so that conntrack entries may lead nowhere
	former relay.Ports       // TCP ports of the process before this one, to which conntrack entries may lead

	formerRead, socketMatchProbed bool
}

func newRedirected(p *process, tool iptables.Tool) *redirected {
	r := &redirected{
		sockets: newSockets(p, tool.Family), portals: p.relay.NewRedirected(iptables.Unspecified(tool.Family)),
		rules: newFamilyRules(tool), moved: make(map[sdk.Name]bool),
	}
	r.listen = r.listenFor
	r.reset()
	return r
}

// unspecified are the places of node ports. The rules have the addresses that take them.
var unspecified = []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()}

// Masquerade returns the hold on the chains that all dataplanes share.
func (r *redirected) Masquerade() *masquerade.Hold { return r.rules.Masquerade }

// Tell names chains that iptables cannot print.
func (r *redirected) Tell(report *sdk.Report) {
	report.Notes = append(report.Notes, r.rules.Notes()...)
}

// Hold passes the writer's lock to every program that writes.
func (r *redirected) Hold(lock *ledger.Lock) {
	r.writes = lock != nil
	r.rules.Hold(lock)
}

// Adopt reads the tables, unless no process has written since the last reading. The writer also reads the ports of the
// process before it, to listen at the same ports: connections on their way there then reach this process. Whether the
// kernel has xt_socket is found out earlier, while another process still serves.
func (r *redirected) Adopt(ctx context.Context, _ frame.Parts) (sdk.Role, error) {
	r.compareAll()
	if !r.rules.IsCurrent() {
		if _, err := r.rules.List(ctx); err != nil {
			return 0, err
		}
	}
	if r.writes && !r.formerRead {
		r.formerRead = true
		r.former = portsIn(r.rules.Found)
		r.portals.Prefer(r.former)
	}
	if !r.socketMatchProbed {
		if err := r.rules.probeSocketMatch(ctx); err != nil {
			r.log.Info("the kernel cannot match sockets; clients that connect while the plugin restarts will be refused", "family", r.family, "err", err)
		}
		r.socketMatchProbed = ctx.Err() == nil
	}
	if shown := r.rules.ShownRole(); shown == sdk.Active || r.role != sdk.Draining {
		return shown, nil
	}
	return sdk.Draining, nil // the rules are the same as in Standby
}

// Ours reports whether the tables have a chain that this mode always writes and kube-proxy never does.
func (r *redirected) Ours() bool {
	_, there := r.rules.Found(toAny)
	return there
}

// Node sets the node, and reads the machine's addresses and uplinks.
func (r *redirected) Node(n sdk.Node) error {
	if err := r.setNode(n); err != nil {
		return err
	}
	of := &r.rules.node
	if uplinks, err := flows.Uplinks(r.family); err == nil { // otherwise Probe tries again
		of.uplinks = uplinks
	}
	of.node, of.nodePorts, of.to = r.machine.node, r.machine.takes, r.machine.target(r.family, of.to)
	r.relay.SetMark(of.mark())
	for name := range r.Desired() { // all rules depend on the node
		r.changed[name] = true
	}
	return nil
}

// Role sets the role for which jumps are planned.
func (r *redirected) Role(role sdk.Role) error {
	r.role = role
	return nil
}

// Want returns the piece of a Service. A node port has one claim for all addresses.
func (r *redirected) Want(svc sdk.Service) (*desired, error) { return r.want(svc, unspecified) }

// Plan returns the sockets to open and close, and the rules to write.
func (r *redirected) Plan() frame.Plan {
	r.rebind()
	return &redirectedPlan{Plan: r.claims.Plan(), r: r}
}

// A redirectedPlan plans the rules only when it is applied, because they depend on the ports of the sockets.
type redirectedPlan struct {
	reconcile.Plan[*desired, claimKey, *claim] // also has RemovedUDP
	r                                          *redirected
	rules                                      []string // steps of the rules, after Apply
}

// Steps returns the steps of the rules and of the sockets.
func (p *redirectedPlan) Steps() []string { return append(p.rules, p.Plan.Steps()...) }

// Apply opens sockets, writes the rules that lead to them, and closes other sockets. If the kernel refuses a rule, it writes
// none, and no socket is closed.
func (p *redirectedPlan) Apply(ctx context.Context) ([]sdk.Failure, error) {
	failed, err := p.r.apply(ctx, p.Plan)
	if err != nil {
		return nil, err
	}
	plan := p.r.planRules()
	p.rules = plan.Steps()
	if _, err := plan.Apply(ctx); err != nil { // a frame.Refused names the Services
		return nil, err
	}
	p.r.finish()
	return failed, nil
}

// rebind closes the UDP sockets if rules redirect packets to another address from now on. The next plan opens them there.
func (r *redirected) rebind() {
	if r.bound == r.rules.node.to {
		return
	}
	r.bound = r.rules.node.to
	for p, socket := range r.open {
		if p.protocol == sdk.UDP {
			delete(r.open, p)
			socket.Close()
			r.failed[p], r.retry = nil, true
		}
	}
}

// listenFor opens the socket of a claim.
func (r *redirected) listenFor(ctx context.Context, c *claim) (relay.Socket, error) {
	if c.place.protocol == sdk.TCP {
		return r.portals.ListenTCP(ctx, c.place.addr)
	}
	return r.listenUDP(ctx, c)
}

// listenUDP opens the socket of a claim at the port to which rules redirect already, so that flows continue after a process
// was killed. If there is no such rule, or another process still has the port, the socket gets a new port.
func (r *redirected) listenUDP(ctx context.Context, c *claim) (relay.Socket, error) {
	if at := r.redirectedUDP(c); at.Addr() == r.bound && relay.Probe(ctx, sdk.UDP, at) == nil {
		if s, err := r.portals.ListenUDP(ctx, c.place.addr, at); err == nil {
			return s, nil
		}
	}
	r.moved[c.name] = true
	return r.portals.ListenUDP(ctx, c.place.addr, netip.AddrPortFrom(r.bound, 0))
}

// redirectedUDP returns where rules in the kernel redirect the datagrams for a claim, or the zero AddrPort.
func (r *redirected) redirectedUDP(c *claim) (at netip.AddrPort) {
	piece := r.rules.Installed()[c.name]
	e := renderer{service: &sdk.Service{Name: c.name}, frontend: *c.frontend}.entry(natPortal, natPort, "")
	rule, _ := piece.Entry(e.In, e.Key)
	own, _ := piece.Chain(nat(ownChain(c.place)))
	_, to, _ := strings.Cut(string(rule)+"\n"+own, "--to-destination ")
	to, _, _ = strings.Cut(to, "\n")
	at, _ = netip.ParseAddrPort(to) // the zero AddrPort if there is none
	return at
}

// planRules plans the rules of the changed Services, for the sockets that are open now.
func (r *redirected) planRules() frame.Plan {
	pieces := make(map[sdk.Name]rules.Piece)
	for name := range r.changed {
		r.step()
		pieces[name] = r.piece(name)
	}
	r.rules.SetDesired(pieces)
	r.rules.node.ports = r.portals.Ports()
	r.rules.setRole(r.role)
	return r.rules.Plan()
}

// piece returns the rules of a Service, including one that accepts health checks.
func (r *redirected) piece(name sdk.Name) rules.Piece {
	d := r.installed(name)
	if d == nil {
		return rules.Piece{}
	}
	var all frontendRules
	for i := range d.claims {
		at := r.rulesFor(&d.claims[i])
		all.chains, all.entries = append(all.chains, at.chains...), append(all.entries, at.entries...)
	}
	if port := d.service.HealthPort; port != 0 {
		all.entries = append(all.entries, healthEntry(port))
	}
	return rules.NewPiece(all.chains, all.entries)
}

// rulesFor returns the rules of the frontend of a claim.
func (r *redirected) rulesFor(c *claim) frontendRules {
	at := renderer{node: &r.rules.node, service: r.installed(c.name).service, frontend: *c.frontend}
	if socket := r.open[c.place]; socket != nil && c.place.protocol == sdk.UDP {
		at.udp = socket.Port()
	}
	return at.rules()
}

// Probe looks for rules that other programs removed, and sometimes for changed addresses and uplinks of the machine. It also
// deletes conntrack entries that lead to closed ports of the process before this one.
func (r *redirected) Probe(ctx context.Context) frame.Finding {
	r.rules.Look(ctx)
	found := reconcile.Found(r.rules.Doubted())
	if !r.isDue() {
		return found
	}
	to := r.rules.node.to
	uplinks, err := flows.Uplinks(r.family)
	rerouted := err == nil && !slices.EqualFunc(uplinks, r.rules.node.uplinks, flows.Uplink.Equal)
	found.Moved = rerouted || r.hasMoved(func(now *machine) bool {
		return !slices.Equal(now.takes, r.machine.takes) || now.target(r.family, to) != to
	})
	found.Due = r.retry
	r.forgetFormer(ctx)
	return found
}

// close closes all sockets. The rules stay, but are not desired any more.
func (r *redirected) close() {
	none := make(map[sdk.Name]rules.Piece)
	for name := range r.rules.Desired() {
		none[name] = rules.Piece{}
	}
	r.rules.SetDesired(none)
	clear(r.moved)
	r.formerRead, r.former = false, relay.Ports{}
	r.sockets.close()
	r.portals.Close()
}
