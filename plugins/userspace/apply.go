// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// prepare takes the steps that open sockets, for no Service yet. A Service that cannot have all
// its places keeps those that it had, and is named. It returns the steps as they are then.
func (s *sockets) prepare(ctx context.Context, steps []step, opens func(context.Context, place) error) ([]step, []sdk.Failure, error) {
	for p := range s.touched {
		delete(s.owed, p)
	}
	failed := make(map[sdk.Name]error)
	for {
		refused, err := s.openEach(ctx, steps, opens)
		if err != nil {
			s.discard()
			return nil, nil, err
		}
		if len(refused) == 0 {
			return steps, failures(failed), nil
		}
		for _, r := range refused {
			s.giveUp(r, failed)
		}
		steps = s.plan()
	}
}

// A refusal is a place that could not be opened, and why.
type refusal struct {
	claim claim
	err   error
}

func (s *sockets) openEach(ctx context.Context, steps []step, opens func(context.Context, place) error) (refused []refusal, err error) {
	for _, step := range steps {
		p := step.claim.place
		if _, hopeless := s.owed[p]; hopeless || step.verb != open {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s.step()
		if err := opens(ctx, p); err != nil {
			refused = append(refused, refusal{step.claim, err})
		}
	}
	return refused, nil
}

// discard closes what was opened, and serves nothing yet.
func (s *sockets) discard() {
	for p, socket := range s.open {
		if socket.Target() == nil {
			delete(s.open, p)
			socket.Close()
		}
	}
}

// giveUp has the Service keep what it had. One that no update changed, or of which an
// address has just gone, is served without, and the place tried again.
func (s *sockets) giveUp(r refusal, failed map[sdk.Name]error) {
	p, name := r.claim.place, r.claim.name
	err := explain(p, r.err)
	if _, already := failed[name]; already || !s.edited(name) || r.claim.every() && notOurs(r.err) {
		s.owed[p] = err
		s.log.Warn("cannot listen; trying again", "at", p.String(), "service", name, "err", err)
		return
	}
	failed[name] = err
	s.put(name, s.served[name])
}

// edited reports whether an update gave the Service another value than connections see.
func (s *sockets) edited(name sdk.Name) bool {
	was, d := s.served[name], s.table.desired[name]
	return was == nil || !was.service.Equal(*d.service)
}

// resume opens a socket at p again that still finishes what it has begun.
func (s *sockets) resume(p place) bool {
	socket := s.retired[p]
	if socket == nil {
		return false
	}
	delete(s.retired, p)
	if !socket.Resume() {
		return false
	}
	s.open[p] = socket
	return true
}

// commit has connections see the values that are desired, and gives away what is open.
// What closes stays open for now.
func (s *sockets) commit(steps []step) {
	for name := range s.changed {
		s.step()
		if d := s.table.desired[name]; d != nil {
			s.publish(*d.service)
		}
	}
	for _, step := range steps {
		if socket := s.open[step.claim.place]; socket != nil && step.verb == give {
			s.step()
			socket.Serve(&relay.Target{Service: s.services[step.claim.name], Frontend: *step.claim.frontend})
		}
	}
	for name := range s.changed {
		s.step()
		s.tell(name)
	}
}

// publish makes svc what connections see from now on.
func (s *sockets) publish(svc sdk.Service) {
	service := s.services[svc.Name]
	if service == nil {
		service = relay.NewService(svc)
		s.services[svc.Name] = service
	} else {
		service.Set(svc)
	}
	service.ImportAffinity(s.affinity[svc.Name], time.Now())
	delete(s.affinity, svc.Name)
}

// tell says to sockets that the endpoints of a Service have changed.
func (s *sockets) tell(name sdk.Name) {
	d := s.table.desired[name]
	if d == nil || name.Protocol != sdk.UDP {
		return
	}
	for _, c := range d.claims {
		for _, socket := range []relay.Socket{s.open[c.place], s.retired[c.place]} {
			if socket != nil && holderOf(socket).name == name {
				socket.EndpointsChanged()
			}
		}
	}
}

// finish closes what no Service wants, and forgets the Services that are gone: all that was
// touched is as it should be.
func (s *sockets) finish(steps []step) {
	for _, step := range steps {
		if step.verb == closeDown {
			s.step()
			if socket := s.open[step.claim.place]; socket != nil && !s.keepsFlows(holderOf(socket)) {
				delete(s.open, step.claim.place)
				socket.Close()
				continue
			}
			s.release(step.claim.place)
		}
	}
	for name := range s.changed {
		d := s.table.desired[name]
		if d != nil {
			s.served[name] = d
			continue
		}
		delete(s.served, name)
		delete(s.services, name)
	}
	s.changed, s.touched = make(map[sdk.Name]bool), make(map[place]bool) // small again: to walk a map costs its largest size
}

// keepsFlows reports whether UDP flows to a frontend whose socket closes go on until they end: its Service still
// has it, and something serves the Service.
func (s *sockets) keepsFlows(h holder) bool {
	d := s.table.desired[h.name]
	return d != nil && len(d.service.Reachable())+len(d.service.Serving) > 0 &&
		slices.ContainsFunc(d.service.Frontends, func(f sdk.Frontend) bool { return f.Addr == h.frontend.Addr })
}

// release lets go of the socket at p when what it has begun is over.
func (s *sockets) release(p place) {
	socket := s.open[p]
	delete(s.open, p)
	switch {
	case socket.Target() == nil:
		socket.Close()
	case socket.Drain():
		s.retired[p] = socket
	}
}

// failures are those of Services, in order.
func failures(of map[sdk.Name]error) []sdk.Failure {
	var all []sdk.Failure
	for name, err := range of {
		all = append(all, sdk.Failure{Name: name, Err: err})
	}
	slices.SortFunc(all, func(a, b sdk.Failure) int { return a.Name.Compare(b.Name) })
	return all
}

// probe finds out whether p could be opened. A place that is in use can: the process that
// serves there may be the one that this one is to succeed.
func probe(ctx context.Context, p place) error {
	err := relay.Probe(ctx, p.protocol, p.addr)
	if errors.Is(err, relay.ErrInUse) {
		return nil
	}
	return err
}

// explain makes an error of relay.Listen one that says what to do. What no retry can
// mend is a Refusal.
func explain(p place, err error) error {
	switch {
	case notOurs(err):
		return &sdk.Refusal{
			Field: "frontends",
			Why:   fmt.Sprintf("no interface of this machine has the address %s", p.addr.Addr()),
			Try:   tryAdd(p.addr.Addr()),
		}
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

// tryAdd is what to type where no interface has addr.
func tryAdd(addr netip.Addr) string {
	if runtime.GOOS == "windows" {
		return "addresses: auto, among the options of userspace"
	}
	return fmt.Sprintf("ip address add %s dev lo", netip.PrefixFrom(addr, addr.BitLen()))
}

// notOurs reports whether the machine lacks the address, now.
func notOurs(err error) bool { return errors.Is(err, relay.ErrNotLocal) }
