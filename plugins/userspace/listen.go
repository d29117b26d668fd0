// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// This file is how a connection reaches us: sockets on the frontends' own
// addresses. What becomes of it is in tcp.go, udp.go and pick.go.

// A socket catches what is sent to one place. It serves nobody before it is
// given to a target, and is then switched without being closed.
type socket interface {
	give(*target)
	target() *target
	stands() error // does the kernel still have it?
	follow()       // its Service's endpoints have changed
	retire() bool  // catches nothing new; true while what it has begun needs it
	resume() bool  // the other way; false when it is too late
	shut()         // catches nothing any more
}

// open makes a socket at p.
func (r *relay) open(ctx context.Context, p place) (socket, error) {
	switch p.protocol {
	case sdk.TCP:
		return r.openTCP(ctx, p)
	case sdk.UDP:
		s, err := r.openUDP(ctx, p, p.addr)
		if err != nil {
			return nil, err
		}
		return s, nil
	}
	return nil, fmt.Errorf("listen on %s: no such protocol here", p)
}

func network(p place) string {
	return sdk.Name{Protocol: p.protocol, Family: sdk.FamilyOf(p.addr.Addr())}.Network()
}

// explain makes an error of the kernel one that says what to do. What no retry
// can mend is a Refusal.
func explain(p place, err error) error {
	switch {
	case errors.Is(err, errNotOurs):
		return &sdk.Refusal{
			Field: "frontends",
			Why:   fmt.Sprintf("no interface of this machine has the address %s", p.addr.Addr()),
			Try:   fmt.Sprintf("ip address add %s dev lo", netip.PrefixFrom(p.addr.Addr(), p.addr.Addr().BitLen())),
		}
	case errors.Is(err, errNotAllowed):
		return &sdk.Refusal{
			Field: "frontends",
			Why:   fmt.Sprintf("this process may not listen on port %d", p.addr.Port()),
			Try:   fmt.Sprintf("sysctl net.ipv4.ip_unprivileged_port_start=%d, or give the plugin CAP_NET_BIND_SERVICE", p.addr.Port()),
		}
	case errors.Is(err, errInUse):
		return fmt.Errorf("listen on %s: another program has it (ss -%slnp sport = :%d shows which): %w",
			p, p.protocol.String()[:1], p.addr.Port(), err)
	}
	return fmt.Errorf("listen on %s: %w", p, err)
}

// notOurs reports whether the machine lacks the address, now.
func notOurs(err error) bool { return errors.Is(err, errNotOurs) }

// probe finds out whether a socket could be opened at p, and leaves none.
func probe(ctx context.Context, p place) error {
	var l net.ListenConfig
	if p.protocol == sdk.UDP {
		conn, err := l.ListenPacket(ctx, network(p), p.addr.String())
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return bind(p)
}
