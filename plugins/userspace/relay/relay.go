// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// DefaultUDPIdle is the time without a datagram after which a UDP flow ends, before SetUDPIdle.
const DefaultUDPIdle = 250 * time.Millisecond

// A Relay forwards connections and flows from its Sockets to endpoints. Its methods may be called concurrently.
type Relay struct {
	group   group
	node    atomic.Pointer[node]
	udpIdle atomic.Int64  // in nanoseconds
	mark    atomic.Uint32 // of packets to endpoints; 0: none
	log     atomic.Pointer[slog.Logger]
	buffers buffers

	Counters Counters // read-only
}

// New returns a Relay without sockets, for an unknown node. Stop ends it.
func New() *Relay {
	r := new(Relay)
	r.group.init()
	r.SetNode(sdk.Node{}, nil)
	r.SetUDPIdle(DefaultUDPIdle)
	r.SetLog(slog.New(slog.DiscardHandler))
	return r
}

// SetLog sets the logger.
func (r *Relay) SetLog(log *slog.Logger) { r.log.Store(log) }

// SetUDPIdle sets the time without a datagram in either direction after which a UDP flow ends. It takes effect for a flow
// with its next datagram.
func (r *Relay) SetUDPIdle(d time.Duration) { r.udpIdle.Store(int64(d)) }

// SetMark sets the mark of packets to endpoints, by which rules can tell them from packets of clients. It takes effect for
// new connections and flows. 0 means no mark. A mark needs Linux and CAP_NET_ADMIN.
func (r *Relay) SetMark(mark uint32) { r.mark.Store(mark) }

// SetNode sets the node, and the addresses of the machine. Clients with such an address are on the node. The caller must
// not modify own afterwards.
func (r *Relay) SetNode(n sdk.Node, own map[netip.Addr]bool) { r.node.Store(&node{n, own}) }

// Stop closes all connections, flows and Sockets with a Target, and waits until their goroutines have ended. The Relay can be
// used again.
func (r *Relay) Stop() {
	r.group.stop()
	r.group.init()
}

// Listen opens a TCP or UDP Socket at an address of this machine. Its error may wrap ErrNotLocal, ErrNotAllowed or ErrInUse.
func (r *Relay) Listen(ctx context.Context, protocol sdk.Protocol, at netip.AddrPort) (Socket, error) {
	if protocol == sdk.TCP {
		l, err := r.listenTCP(ctx, at, reusePort)
		if err != nil {
			return nil, err
		}
		return &tcpSocket{server: server{relay: r, at: at}, listener: l}, nil
	}
	return r.listenUDP(ctx, at, at, false)
}

// Probe returns the error that Listen would return if no process could share a port.
func Probe(ctx context.Context, protocol sdk.Protocol, at netip.AddrPort) error {
	var l net.ListenConfig
	var c io.Closer
	var err error
	if protocol == sdk.TCP {
		c, err = l.Listen(ctx, network(protocol, at), at.String())
	} else {
		c, err = l.ListenPacket(ctx, network(protocol, at), at.String())
	}
	if err != nil {
		return err
	}
	return c.Close()
}

// network returns the name in package net of a protocol in the family of at.
func network(protocol sdk.Protocol, at netip.AddrPort) string {
	return sdk.Name{Protocol: protocol, Family: sdk.FamilyOf(at.Addr())}.Network()
}

// choose picks an endpoint of t's route for a client, if the verdict is Forward, and reports whether the route has only one.
func (r *Relay) choose(t *Target, from sdk.Caller, tried []netip.AddrPort) (ep netip.AddrPort, only bool, v sdk.Verdict) {
	svc := t.Service.Value()
	route := svc.Route(t.Frontend, from, r.node.Load().Node)
	if route.Verdict != sdk.Forward {
		r.Counters.TurnedAway.Add(1)
		return ep, false, route.Verdict
	}
	return t.Service.pick(svc, route.Endpoints, from.Addr, tried, time.Now()), len(route.Endpoints) == 1, sdk.Forward
}

// dialer returns a Dialer for connections to endpoints.
func (r *Relay) dialer() net.Dialer {
	return net.Dialer{KeepAliveConfig: keepAlive, Control: withMark(r.mark.Load())}
}

// A node is the node with the machine's addresses. It is immutable.
type node struct {
	sdk.Node
	own map[netip.Addr]bool
}

// caller returns the Caller at an address. device is the interface by which its packet arrived, if known. Of a range of
// addresses that the machine has, only those in own are on the node.
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

// Counters count since New. Those of type Int64 are current numbers.
type Counters struct {
	Accepted    atomic.Uint64 // TCP connections
	Dialing     atomic.Int64  // TCP connections without an endpoint yet
	Established atomic.Int64  // TCP connections with an endpoint
	DialErrors  atomic.Uint64
	TurnedAway  atomic.Uint64 // connections and datagrams that their route does not forward
	Unanswered  atomic.Uint64 // connections for which no endpoint answered
	Flows       atomic.Int64  // UDP flows
	FlowsBegun  atomic.Uint64
	Overflow    atomic.Uint64 // datagrams dropped because there were too many flows
	BytesIn     atomic.Uint64 // from clients
	BytesOut    atomic.Uint64 // to clients
}

// Open returns the current number of connections and flows.
func (c *Counters) Open() int { return int(c.Dialing.Load() + c.Established.Load() + c.Flows.Load()) }
