// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// DefaultUDPIdle is how long a UDP flow lasts without a datagram, until SetUDPIdle says
// otherwise.
const DefaultUDPIdle = 250 * time.Millisecond

// A Relay carries connections and flows from its Sockets to endpoints. Its methods may
// be called at any time, by several goroutines at once.
type Relay struct {
	group   group
	node    atomic.Pointer[node]
	udpIdle atomic.Int64  // of a UDP flow, in nanoseconds
	mark    atomic.Uint32 // on packets to endpoints; zero: none
	log     atomic.Pointer[slog.Logger]
	buffers buffers

	Counters Counters // is only read
}

// New returns a Relay without sockets, on a node of which nothing is known. Stop ends it.
func New() *Relay {
	r := new(Relay)
	r.group.init()
	r.SetNode(sdk.Node{}, nil)
	r.SetUDPIdle(DefaultUDPIdle)
	r.SetLog(slog.New(slog.DiscardHandler))
	return r
}

// SetLog makes log the one that is written to from now on.
func (r *Relay) SetLog(log *slog.Logger) { r.log.Store(log) }

// SetUDPIdle makes UDP flows end after so long without a datagram in either direction.
// Flows that are open notice with their next datagram.
func (r *Relay) SetUDPIdle(d time.Duration) { r.udpIdle.Store(int64(d)) }

// SetMark puts a mark on the packets of connections to endpoints that begin from now on,
// so that rules can tell them from those of clients. Zero means no mark. It needs Linux
// and CAP_NET_ADMIN.
func (r *Relay) SetMark(mark uint32) { r.mark.Store(mark) }

// SetNode says what the machine is like, and which addresses it has: by these a client
// on the node is told from others. The caller must not change own afterwards.
func (r *Relay) SetNode(n sdk.Node, own map[netip.Addr]bool) { r.node.Store(&node{n, own}) }

// Stop ends all connections and flows, and waits until their goroutines have
// ended. Sockets that never served anything stay open. The Relay can be used again.
func (r *Relay) Stop() {
	r.group.stop()
	r.group.init()
}

// Listen opens a Socket of TCP or UDP at an address that this machine has. Its error wraps one of
// ErrNotLocal, ErrNotAllowed and ErrInUse if that is the reason.
func (r *Relay) Listen(ctx context.Context, protocol sdk.Protocol, at netip.AddrPort) (Socket, error) {
	if protocol == sdk.TCP {
		l, err := r.listenTCP(ctx, at)
		if err != nil {
			return nil, err
		}
		return &tcpSocket{server: server{relay: r, at: at}, listener: l}, nil
	}
	return r.listenUDP(ctx, at, at, false)
}

// Probe finds out whether Listen would succeed, and leaves no socket. No client is
// answered meanwhile.
func Probe(ctx context.Context, protocol sdk.Protocol, at netip.AddrPort) error {
	if protocol == sdk.TCP {
		return bindOnce(at)
	}
	var l net.ListenConfig
	conn, err := l.ListenPacket(ctx, network(protocol, at), at.String())
	if err != nil {
		return err
	}
	return conn.Close()
}

// network is what package net calls the protocol in the family of at.
func network(protocol sdk.Protocol, at netip.AddrPort) string {
	return sdk.Name{Protocol: protocol, Family: sdk.FamilyOf(at.Addr())}.Network()
}

// choose asks t's route for an endpoint that is not among those tried, and reports whether it is the only one. The
// verdict is Forward if there is one.
func (r *Relay) choose(t *Target, from sdk.Caller, tried []netip.AddrPort) (ep netip.AddrPort, only bool, v sdk.Verdict) {
	svc := t.Service.Value()
	route := svc.Route(t.Frontend, from, r.node.Load().Node)
	if route.Verdict != sdk.Forward {
		r.Counters.TurnedAway.Add(1)
		return ep, false, route.Verdict
	}
	return t.Service.pick(svc, route.Endpoints, from.Addr, tried, time.Now()), len(route.Endpoints) == 1, sdk.Forward
}

// dialer connects to endpoints.
func (r *Relay) dialer() net.Dialer {
	return net.Dialer{KeepAliveConfig: keepAlive, Control: withMark(r.mark.Load())}
}

// A node is the machine as connections see it. It is replaced, never changed.
type node struct {
	sdk.Node
	own map[netip.Addr]bool
}

// caller says where a client at addr is, which came in by a device if that is known. Only
// addresses that the node or an interface has count as the node's: a loopback interface
// would accept all of its range.
func (n *node) caller(addr netip.Addr, device string) sdk.Caller {
	addr = addr.Unmap().WithZone("")
	switch {
	case n.Pods.Contains(addr, device):
		return sdk.Caller{Addr: addr, From: sdk.OnPod}
	case n.own[addr]:
		return sdk.Caller{Addr: addr, From: sdk.OnNode}
	}
	return sdk.Caller{Addr: addr}
}

// Counters are of the whole life of a Relay, or of the present moment.
type Counters struct {
	Accepted    atomic.Uint64 // TCP connections
	Dialing     atomic.Int64  // of them, now without an endpoint yet
	Established atomic.Int64  // of them, now with one
	DialErrors  atomic.Uint64
	TurnedAway  atomic.Uint64 // connections and datagrams that their route drops
	Unanswered  atomic.Uint64 // connections for which no endpoint answered
	Flows       atomic.Int64  // of UDP, now
	FlowsBegun  atomic.Uint64
	Overflow    atomic.Uint64 // datagrams dropped because there were too many flows
	BytesIn     atomic.Uint64 // from clients
	BytesOut    atomic.Uint64 // to clients
}

// Open is how many connections and flows there are now.
func (c *Counters) Open() int { return int(c.Dialing.Load() + c.Established.Load() + c.Flows.Load()) }
