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

// A process has what all families share.
type process struct {
	relay     *relay.Relay
	addresses func() ([]address, error) // returns the addresses of this machine
	log       *slog.Logger
	step      func() // reports progress of the current call
	vips      *vips

	// affinity has imported entries of Services that no update has named yet.
	affinity map[sdk.Name][]sdk.AffinityEntry
}

// A sockets has the sockets of one IP family and the Services that they serve. Package reconcile keeps them, by socketMode
// and socketKernel: its entries are the claims of Services and the VIPs that they need. A socket serves the claim of a
// frontend with its address, or else that of a node port.
type sockets struct {
	*process
	family  sdk.Family
	machine *machine
	role    sdk.Role // the last one that was set
	writes  bool     // this process may open sockets and write rules

	// listen opens the socket of a claim. It returns nil without an error if the socket could be opened, but the role
	// needs none.
	listen func(context.Context, *claim) (relay.Socket, error)

	claims   *reconcile.Reconciler[*desired, claimKey, *claim]
	rivals   map[place]rivals // the installed claims
	services map[sdk.Name]liveService
	open     map[place]relay.Socket
	leaving  map[place]relay.Socket // sockets that no claim needs, but perhaps UDP flows
	closing  map[place]bool         // those of leaving that finish drains or closes
	failed   map[place]error        // sockets that could not be opened, with the reason
	changed  map[sdk.Name]bool      // Services that changed since the last plan
	retry    bool                   // the next plan opens failed sockets

	readAt    time.Time // when the machine's addresses were read
	expiredAt time.Time // when expired affinity was removed
}

// A claimKey is a key of the reconciler.
type claimKey struct {
	isVIP bool
	place place // of a VIP only the address
	every bool  // the claim belongs to a node port
}

// rivals are the claims to one place: that of a frontend with this address, and that of a node port.
type rivals [2]*claim

// owner returns the claim that the socket serves, or nil.
func (r rivals) owner() *claim { return cmp.Or(r[0], r[1]) }

// rank returns the index of a claim in rivals.
func (k claimKey) rank() int {
	if k.every {
		return 1
	}
	return 0
}

// A liveService is a Service as connections see it.
type liveService struct {
	*relay.Service
	value *desired
}

func newSockets(p *process, f sdk.Family) sockets {
	return sockets{process: p, family: f, machine: newMachine(sdk.Node{}, nil)}
}

// reset returns to the state of a process that has served nothing.
func (s *sockets) reset() {
	s.role = 0
	s.claims = reconcile.New(socketMode{s}, socketKernel{s})
	s.claims.Name = s.family.String()
	s.rivals = make(map[place]rivals)
	s.services = make(map[sdk.Name]liveService)
	s.open = make(map[place]relay.Socket)
	s.leaving = make(map[place]relay.Socket)
	s.failed = make(map[place]error)
	s.changed = make(map[sdk.Name]bool)
	s.closing = make(map[place]bool)
	s.retry = false
}

// close closes all sockets.
func (s *sockets) close() {
	for _, all := range []map[place]relay.Socket{s.open, s.leaving} {
		for _, socket := range all {
			socket.Close()
		}
	}
	s.reset()
}

func (s *sockets) core() *sockets { return s }

// Serves reports whether f is the IP family of the sockets.
func (s *sockets) Serves(f sdk.Family) bool { return f == s.family }

// Desired returns the desired pieces by Service.
func (s *sockets) Desired() map[sdk.Name]*desired { return s.claims.Desired() }

// Installed returns nil: nothing that serves a Service outlives the process.
func (s *sockets) Installed() map[sdk.Name]*desired { return nil }

// SetDesired replaces the desired pieces of Services.
func (s *sockets) SetDesired(pieces map[sdk.Name]*desired) {
	for name := range pieces {
		s.changed[name] = true
	}
	s.claims.SetDesired(pieces)
}

// installed returns the piece of a Service that connections see, or nil.
func (s *sockets) installed(name sdk.Name) *desired { return s.claims.Installed()[name] }

// want returns the piece of a Service. If it equals the current one, want returns that.
func (s *sockets) want(svc sdk.Service, nodePorts []netip.Addr) (*desired, error) {
	d, err := want(svc, nodePorts)
	if had := s.Desired()[svc.Name]; err == nil && d.Equal(had) {
		return had, nil
	}
	return d, err
}

// compareAll makes the next plan compare all claims.
func (s *sockets) compareAll() { _, _ = s.claims.List(context.Background()) } // reads only memory, so it cannot fail

// setMachine replaces the machine, also in the relay.
func (s *sockets) setMachine(m *machine) {
	s.machine = m
	s.relay.SetNode(m.node, m.own)
}

// needsVIP reports whether a socket at addr needs the address to be added to an interface. Linux has every address of a
// loopback range.
func (s *sockets) needsVIP(addr netip.Addr) bool {
	return s.vips.enabled && !loopback(s.machine.addresses, addr)
}

// addVIPs adds the addresses to an interface. A process that does not serve adds none.
func (s *sockets) addVIPs(ctx context.Context, addrs []netip.Addr) error {
	if s.vips.system == nil || s.role != sdk.Active {
		return nil
	}
	return s.vips.add(ctx, addrs, s.step)
}

// A socketMode is sockets as a reconcile.Mode.
type socketMode struct{ *sockets }

// Entries calls add with the claims of a Service and the VIPs that they need.
func (m socketMode) Entries(_ sdk.Name, d *desired, add func(claimKey, *claim)) {
	if d == nil {
		return
	}
	var vips []netip.Addr
	for i := range d.claims {
		c := &d.claims[i]
		add(c.key(), c)
		if addr := c.place.addr.Addr(); !c.every() && m.needsVIP(addr) && !slices.Contains(vips, addr) {
			vips = append(vips, addr)
			add(vipKey(addr), nil)
		}
	}
}

// vipKey returns the key of a VIP.
func vipKey(addr netip.Addr) claimKey {
	return claimKey{isVIP: true, place: place{addr: netip.AddrPortFrom(addr, 0)}}
}

// Fixed returns nil: every entry belongs to a Service.
func (socketMode) Fixed(sdk.Role, map[string]bool) map[claimKey]*claim { return nil }

// Phases of a change.
const (
	addVIPs uint8 = iota
	changeSockets
	dropVIPs
)

// Kind implements reconcile.Mode.
func (socketMode) Kind(k claimKey) reconcile.Kind {
	if k.isVIP {
		return reconcile.Kind{Add: addVIPs, Remove: dropVIPs, Counted: true, Label: "addresses"}
	}
	return reconcile.Kind{Add: changeSockets, Remove: changeSockets, Label: "sockets"}
}

// Parse returns the installed pieces, which only this process changes.
func (m socketMode) Parse(map[claimKey]*claim) (map[sdk.Name]*desired, sdk.Role) {
	return m.claims.Installed(), 0
}

// Frontend returns the place of a claim.
func (socketMode) Frontend(k claimKey) (sdk.Protocol, netip.AddrPort, bool) {
	return k.place.protocol, k.place.addr, !k.isVIP
}

// A socketKernel is sockets as a reconcile.Kernel.
type socketKernel struct{ *sockets }

type batch = reconcile.Batch[claimKey, *claim]

// changes returns the changes of a phase.
func changes(b batch, phase uint8) []reconcile.Change[claimKey, *claim] {
	if int(phase) < len(b.Phases) {
		return b.Phases[phase]
	}
	return nil
}

// List returns the installed claims, and the VIPs that they need.
func (k socketKernel) List(context.Context) (map[claimKey]*claim, error) {
	all := make(map[claimKey]*claim, len(k.rivals))
	for _, r := range k.rivals {
		for _, c := range r {
			if c != nil {
				all[c.key()] = c
			}
		}
	}
	for addr := range k.vips.present {
		if k.Serves(sdk.FamilyOf(addr)) {
			all[vipKey(addr)] = nil
		}
	}
	for addr := range k.vips.missing {
		if k.Serves(sdk.FamilyOf(addr)) {
			all[vipKey(addr)] = nil
		}
	}
	return all, nil
}

// Foreign returns nothing: no other program changes the sockets of this process.
func (socketKernel) Foreign(context.Context) (why string, unsure bool) { return "", false }

// Apply makes the sockets serve the claims of a batch. It first opens all sockets. If that fails for some claims, it
// refuses them and changes nothing. Sockets that no claim needs any more stay open until finish.
func (k socketKernel) Apply(ctx context.Context, b batch) (map[claimKey]error, error) {
	next := k.follow(b)
	var added []netip.Addr
	for _, c := range changes(b, addVIPs) {
		added = append(added, c.Key.place.addr.Addr())
	}
	err := k.addVIPs(ctx, added)
	var refused map[claimKey]error
	if err == nil {
		refused, err = k.openAll(ctx, next)
	}
	if err != nil || len(refused) > 0 {
		for _, addr := range added {
			k.vips.drop(addr)
		}
		return refused, err
	}
	for _, c := range changes(b, changeSockets) {
		if c.New != nil {
			k.publish(k.Desired()[c.New.name])
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
		delete(k.failed, p)
		k.leave(p)
	}
	for _, c := range changes(b, dropVIPs) {
		k.vips.drop(c.Key.place.addr.Addr())
	}
	return nil, nil
}

// follow returns the rivals after a batch at each place that it changes.
func (s *sockets) follow(b batch) map[place]rivals {
	next := make(map[place]rivals)
	for _, c := range changes(b, changeSockets) {
		p := c.Key.place
		r, seen := next[p]
		if !seen {
			r = s.rivals[p]
		}
		r[c.Key.rank()] = c.New
		next[p] = r
	}
	return next
}

// openAll opens missing sockets, or none if it returns claims for which that failed. If a claim belongs to a Service that no
// update changed, or to a node port at an address that was just removed, it is only recorded in failed.
func (s *sockets) openAll(ctx context.Context, next map[place]rivals) (refused map[claimKey]error, err error) {
	refused = make(map[claimKey]error)
	failed := make(map[place]error)
	var opened []place
	for p, r := range next {
		c := r.owner()
		if c == nil || !c.listens || s.open[p] != nil {
			continue
		}
		if ctx.Err() != nil {
			break
		}
		switch err := s.openAt(ctx, c); {
		case err == nil:
			opened = append(opened, p)
		case !s.isEdited(c.name), c.every() && isNotLocal(err):
			failed[p] = explain(p, err)
		default:
			refused[c.key()] = explain(p, err)
		}
	}
	if err := ctx.Err(); err != nil || len(refused) > 0 {
		for _, p := range opened {
			s.leave(p)
		}
		return refused, err
	}
	for _, p := range opened {
		delete(s.failed, p)
	}
	for p, err := range failed {
		s.failed[p] = err
		s.log.Warn("cannot listen; trying again", "at", p.String(), "service", next[p].owner().name, "err", err)
	}
	return nil, nil
}

// leave makes finish drain or close the socket at a place, unless a claim needs it before. One without a target is closed
// at once.
func (s *sockets) leave(p place) {
	socket := s.open[p]
	delete(s.open, p)
	switch {
	case socket == nil:
	case socket.Target() == nil:
		socket.Close()
	default:
		s.leaving[p], s.closing[p] = socket, true
	}
}

// openAt opens the socket of a claim. It uses a leaving socket at this place if there is one.
func (s *sockets) openAt(ctx context.Context, c *claim) error {
	s.step()
	p := c.place
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
		s.open[p] = socket
	}
	return err
}

// isEdited reports whether the desired value of a Service differs from what connections see.
func (s *sockets) isEdited(name sdk.Name) bool {
	was, d := s.installed(name), s.Desired()[name]
	return was == nil || d == nil || !was.service.Equal(*d.service)
}

// publish makes d visible to new connections.
func (s *sockets) publish(d *desired) {
	svc := *d.service
	v := s.services[svc.Name]
	switch {
	case v.value == d:
		return
	case v.Service == nil:
		v.Service = relay.NewService(svc)
	default:
		v.Set(svc)
	}
	v.value = d
	s.services[svc.Name] = v
	v.ImportAffinity(s.affinity[svc.Name], time.Now())
	delete(s.affinity, svc.Name)
}

// serve makes the socket of a claim, if it is open, serve the claim's Service.
func (s *sockets) serve(c *claim) {
	if socket := s.open[c.place]; socket != nil {
		s.step()
		socket.Serve(&relay.Target{Service: s.services[c.name].Service, Frontend: *c.frontend})
	}
}

// retryFailed adds missing VIPs and opens failed sockets, if retry is set.
func (s *sockets) retryFailed(ctx context.Context) error {
	if !s.retry {
		return nil
	}
	s.retry = false
	missing := slices.DeleteFunc(slices.Collect(maps.Keys(s.vips.missing)), func(addr netip.Addr) bool { return !s.Serves(sdk.FamilyOf(addr)) })
	if err := s.addVIPs(ctx, missing); err != nil {
		return err
	}
	for p := range maps.Clone(s.failed) {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		c := s.rivals[p].owner()
		if err := s.openAt(ctx, c); err != nil {
			s.failed[p] = explain(p, err)
			continue
		}
		delete(s.failed, p)
		s.serve(c)
		s.changed[c.name] = true
	}
	return nil
}

// apply applies a plan, and makes the changed Services visible to connections. The caller calls finish afterwards.
func (s *sockets) apply(ctx context.Context, p reconcile.Plan[*desired, claimKey, *claim]) ([]sdk.Failure, error) {
	failed, err := p.Apply(ctx)
	if err == nil {
		err = s.retryFailed(ctx)
	}
	if err != nil {
		return nil, err
	}
	for name := range s.changed {
		s.step()
		d := s.installed(name)
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

// finish drains or closes the sockets that no claim needs, and removes deleted Services.
func (s *sockets) finish() {
	for p := range s.closing {
		s.step()
		if socket := s.leaving[p]; !s.keepsFlows(socket.Target()) || !socket.Drain() {
			delete(s.leaving, p)
			socket.Close()
		}
	}
	for name := range s.changed {
		if s.installed(name) == nil {
			delete(s.services, name)
		}
	}
	s.closing, s.changed = make(map[place]bool), make(map[sdk.Name]bool) // new maps, because to walk one costs as much as at its largest
}

// keepsFlows reports whether the UDP flows of a closing socket continue until they end: only if the Service still has
// the frontend and an endpoint that serves.
func (s *sockets) keepsFlows(t *relay.Target) bool {
	d := s.installed(t.Service.Name())
	return d != nil && len(d.service.Reachable())+len(d.service.Serving) > 0 &&
		slices.ContainsFunc(d.service.Frontends, func(f sdk.Frontend) bool { return f.Addr == t.Frontend.Addr })
}

// How often the machine's addresses are read, and expired affinity is removed.
const (
	addressPeriod  = 2 * time.Second
	affinityPeriod = 30 * time.Second
)

// isDue does periodic work, and reports whether the machine's addresses should be read again.
func (s *sockets) isDue() bool {
	now := time.Now()
	if now.Sub(s.expiredAt) >= affinityPeriod {
		s.expiredAt = now
		for _, service := range s.services {
			service.ExpireAffinity(now)
		}
	}
	if now.Sub(s.readAt) < addressPeriod {
		return false
	}
	s.readAt = now
	maps.DeleteFunc(s.leaving, func(p place, socket relay.Socket) bool { return !s.closing[p] && !socket.Drain() })
	s.retry = len(s.failed)+len(s.vips.missing) > 0
	return true
}

// hasMoved reads the machine's addresses. It reports whether they differ in a way that matters. Otherwise it only tells
// the relay.
func (s *sockets) hasMoved(matters func(*machine) bool) bool {
	own, err := s.addresses()
	if err != nil {
		s.log.Warn("cannot read the machine's addresses; node ports stay at the known ones", "err", err)
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

// setNode sets the node, and reads the machine's addresses.
func (s *sockets) setNode(n sdk.Node) error {
	own, err := s.addresses()
	if err != nil {
		return err
	}
	s.setMachine(newMachine(n, own))
	return nil
}

// explain adds what to do to an error of relay.Listen. The result is a Refusal if it makes no sense to try again.
func explain(p place, err error) error {
	switch {
	case isNotLocal(err):
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

// isNotLocal reports whether a socket was not opened because no interface has the address.
func isNotLocal(err error) bool { return errors.Is(err, relay.ErrNotLocal) }
