// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Loopback returns a testbed that needs no privileges: every IPv4 address of a scenario
// becomes one of 127.0.0.0/8, so that the machine has them all, and callers send
// from theirs. On it a caller is the node if it is one of Node.Addrs, a pod if
// Node.Pods has it, and elsewhere otherwise, though all of them are loopback
// addresses.
//
//	10.180.0.9 → 127.180.0.9      192.0.2.7   → 127.192.2.7
//	172.30.0.41 → 127.30.0.41     198.51.100.1 → 127.51.100.1
//
// IPv6 has one loopback address, so there every address becomes [::1] with a port
// of its own, and every caller is the node. A port below 10000 becomes one 20000
// higher, which needs no privileges, and which few programs take on all addresses.
// Packets that would then mean something else are left out. Of several runs on one
// machine, one check at a time has the testbed.
func Loopback() Testbed { return loopback{} }

type loopback struct{}

func (loopback) Place(s Scenario) (Scenario, []string) {
	p := placing{ports: make(map[netip.AddrPort]uint16)}
	placed := s
	placed.Node, placed.Services = p.node(s.Node), each(s.Services, p.service)
	placed.Packets = nil
	var leftOut []string
	for _, packet := range s.Packets {
		moved, why := p.packet(packet, placed)
		if why != "" {
			leftOut = append(leftOut, why)
			continue
		}
		placed.Packets = append(placed.Packets, moved)
	}
	return placed, leftOut
}

// A placing maps one scenario to loopback addresses.
type placing struct {
	ports map[netip.AddrPort]uint16 // ports of [::1] assigned to IPv6 addresses
}

func (p placing) addr(a netip.Addr) netip.Addr {
	switch {
	case a.IsUnspecified(), a.IsLoopback():
		return a
	case a.Is6():
		return netip.IPv6Loopback()
	}
	b := a.As4()
	if b[1] == 0 {
		b[1] = b[0]
	}
	b[0] = 127
	return netip.AddrFrom4(b)
}

func (p placing) addrPort(a netip.AddrPort) netip.AddrPort {
	port := a.Port()
	switch {
	case a.Addr().Is6() && !a.Addr().IsUnspecified():
		if p.ports[a] == 0 {
			p.ports[a] = 22000 + uint16(len(p.ports))
		}
		port = p.ports[a]
	case port < 10000:
		port += 20000
	}
	return netip.AddrPortFrom(p.addr(a.Addr()), port)
}

// prefix maps IPv4 ranges that remain ranges. Others are unchanged, and packets that depend on
// them are left out.
func (p placing) prefix(r netip.Prefix) netip.Prefix {
	if r.Addr().Is6() || r.Bits() < 16 {
		return r
	}
	return netip.PrefixFrom(p.addr(r.Addr()), r.Bits())
}

// each returns list with f applied to each.
func each[T any](list []T, f func(T) T) []T {
	var moved []T
	for _, v := range list {
		moved = append(moved, f(v))
	}
	return moved
}

// node makes node ports served only at addresses that accepted them before, so that nothing
// listens where a test's endpoints do.
func (p placing) node(n sdk.Node) sdk.Node {
	moved := n
	moved.Addrs, moved.NodePorts = nil, nil
	for _, a := range n.Addrs {
		moved.Addrs = append(moved.Addrs, p.addr(a))
		if n.TakesNodePorts(a) {
			moved.NodePorts = append(moved.NodePorts, netip.PrefixFrom(p.addr(a), a.BitLen()))
		}
	}
	moved.Pods.CIDRs = each(n.Pods.CIDRs, p.prefix)
	moved.ServiceCIDRs = each(n.ServiceCIDRs, p.prefix)
	return moved
}

func (p placing) service(s sdk.Service) sdk.Service {
	moved := s
	moved.Frontends = each(s.Frontends, func(f sdk.Frontend) sdk.Frontend {
		f.Addr, f.Sources = p.addrPort(f.Addr), each(f.Sources, p.prefix)
		return f
	})
	endpoint := func(ep sdk.Endpoint) sdk.Endpoint {
		return sdk.Endpoint{Addr: p.addrPort(ep.Addr), OnNode: ep.OnNode}
	}
	moved.Cluster, moved.Local = each(s.Cluster, endpoint), each(s.Local, endpoint)
	moved.Serving = each(s.Serving, p.addr)
	moved.Normalize()
	return moved
}

// packet maps one packet, or returns why it would have another meaning on loopback addresses.
func (p placing) packet(q Packet, s Scenario) (Packet, string) {
	moved := q
	moved.To = p.addrPort(q.To)
	if q.Frontend.Kind == sdk.NodePort { // node ports keep their number
		moved.To = netip.AddrPortFrom(p.addr(q.To.Addr()), q.To.Port())
	}
	moved.From.Addr = p.addr(q.From.Addr)
	moved.Want.Endpoints, moved.Want.Hairpin = p.addrPorts(q.Want.Endpoints), p.addrPorts(q.Want.Hairpin)
	switch {
	case q.Interface != "":
		return q, "all packets come in on the loopback interface"
	case q.Protocol == sdk.SCTP:
		return q, "no SCTP is sent on this testbed"
	case q.From.Addr.Is6():
		moved.From.From = sdk.OnNode
	case s.Node.Pods.Contains(moved.From.Addr, "") != (q.From.From == sdk.OnPod):
		return q, "the caller cannot be distinguished from a pod here"
	case slices.Contains(s.Node.Addrs, moved.From.Addr) != (q.From.From == sdk.OnNode):
		return q, "the caller cannot be distinguished from the node here"
	}
	rule := Where(slices.Values(s.Services), s.Node, moved.From, moved.To, q.Protocol)
	if !rule.Equal(moved.Want) {
		return q, fmt.Sprintf("from loopback addresses it is %s", rule)
	}
	svc, f, _ := Find(slices.Values(s.Services), s.Node, moved.To, q.Protocol)
	moved.Service, moved.Frontend = svc.Name, f
	return moved, ""
}

func (p placing) addrPorts(list []netip.AddrPort) []netip.AddrPort {
	moved := each(list, p.addrPort)
	slices.SortFunc(moved, netip.AddrPort.Compare)
	return moved
}

func (loopback) Open(ctx context.Context, _ sdk.Dataplane, s Scenario) (Stage, error) {
	return OpenStage(ctx, loopback{}, s)
}

func (loopback) Listen(ctx context.Context, protocol sdk.Protocol, at netip.AddrPort) (io.Closer, error) {
	switch protocol {
	case sdk.TCP:
		return new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	case sdk.UDP:
		return new(net.ListenConfig).ListenPacket(ctx, "udp", at.String())
	}
	return nil, nil
}

func (loopback) Dial(ctx context.Context, p Packet) (net.Conn, error) {
	from := netip.AddrPortFrom(p.From.Addr, 0)
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(from)}
	if p.Protocol == sdk.UDP {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	return d.DialContext(ctx, p.Protocol.String(), p.To.String())
}

// Verdict takes a timeout for a drop, and any other error (a reset, an end, an ICMP message)
// for a rejection.
func (loopback) Verdict(err error, _ Packet) (Answer, error) {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return Answer{Verdict: sdk.Drop}, nil
	case errors.Is(err, context.Canceled), slices.ContainsFunc(ownErrors, func(own error) bool { return errors.Is(err, own) }):
		return Answer{}, err
	}
	return Answer{Verdict: sdk.Reject}, nil
}

// ownErrors are errors of this machine: no packet was sent. The numbers are those of Windows:
// WSAEMFILE, WSAEADDRINUSE, WSAEADDRNOTAVAIL and WSAENOBUFS.
var ownErrors = []error{
	syscall.EADDRNOTAVAIL, syscall.EADDRINUSE, syscall.EMFILE, syscall.ENFILE,
	syscall.Errno(10024), syscall.Errno(10048), syscall.Errno(10049), syscall.Errno(10055),
}

// exclusive waits until no other process uses the subject's testbed. The loopback one has one set of addresses
// for all processes of this machine, so only one check at a time may have it. The kernel gives the address back
// when a process ends, however that ends, and each network namespace has one.
func (s Subject) exclusive(ctx context.Context) (done func(), err error) {
	if s.Testbed != Loopback() {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime+time.Minute) // longer than the limit of a check
	defer cancel()
	for {
		l, err := net.Listen("tcp4", "127.0.0.1:22999")
		if err == nil {
			return func() { _ = l.Close() }, nil
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until no other run of the suite sends packets on this machine: %w", err)
		}
	}
}
