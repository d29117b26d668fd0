// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
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

// A placing moves one scenario to loopback addresses.
type placing struct {
	ports map[netip.AddrPort]uint16 // of [::1], given to IPv6 addresses
}

var here6 = netip.IPv6Loopback()

func (p placing) addr(a netip.Addr) netip.Addr {
	switch {
	case a.IsUnspecified(), a.IsLoopback():
		return a
	case a.Is6():
		return here6
	}
	b := a.As4()
	if b[1] == 0 {
		b[1] = b[0]
	}
	b[0] = 127
	return netip.AddrFrom4(b)
}

// firstPort6 is the first of the ports that IPv6 addresses become.
const firstPort6 = 22000

func (p placing) addrPort(a netip.AddrPort) netip.AddrPort {
	port := a.Port()
	switch {
	case a.Addr().Is6() && !a.Addr().IsUnspecified():
		if p.ports[a] == 0 {
			p.ports[a] = firstPort6 + uint16(len(p.ports))
		}
		port = p.ports[a]
	case port < 10000:
		port += 20000
	}
	return netip.AddrPortFrom(p.addr(a.Addr()), port)
}

// prefix moves IPv4 ranges that stay ranges by it. The others stand as they are,
// and packets that hang on them are left out.
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

// node takes node ports on just those of its addresses that took them before, so
// that nothing listens where a test's endpoints do.
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

// packet moves one packet, or says why it would mean something else here.
func (p placing) packet(q Packet, s Scenario) (Packet, string) {
	moved := q
	moved.To = p.to(q)
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
		return q, "the caller cannot be told from a pod here"
	case slices.Contains(s.Node.Addrs, moved.From.Addr) != (q.From.From == sdk.OnNode):
		return q, "the caller cannot be told from the node here"
	}
	rule := Where(slices.Values(s.Services), s.Node, moved.From, moved.To, q.Protocol)
	if !rule.Equal(moved.Want) {
		return q, fmt.Sprintf("from loopback addresses it is %s", rule)
	}
	svc, f, _ := Find(slices.Values(s.Services), s.Node, moved.To, q.Protocol)
	moved.Service, moved.Frontend = svc.Name, f
	return moved, ""
}

// to moves where a packet goes; a node port keeps its number.
func (p placing) to(q Packet) netip.AddrPort {
	if q.Frontend.Kind == sdk.NodePort {
		return netip.AddrPortFrom(p.addr(q.To.Addr()), q.To.Port())
	}
	return p.addrPort(q.To)
}

func (p placing) addrPorts(list []netip.AddrPort) []netip.AddrPort {
	moved := each(list, p.addrPort)
	slices.SortFunc(moved, netip.AddrPort.Compare)
	return moved
}

// exclusiveAddr is where the process that has the loopback testbed listens. The kernel gives it
// back when a process ends, however that ends, and each network namespace has one.
const exclusiveAddr = "127.0.0.1:22999"

// exclusiveTime is longer than any check may take.
const exclusiveTime = checkTime + time.Minute

// exclusive waits until no other process uses the subject's testbed. The loopback one has one
// set of addresses for all processes of this machine, so only one check at a time may have it.
func (s Subject) exclusive(ctx context.Context) (done func(), err error) {
	if s.Testbed != Loopback() {
		return func() {}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, exclusiveTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp4", exclusiveAddr)
		if err == nil {
			return func() { _ = l.Close() }, nil
		}
		if !errors.Is(err, errInUse) {
			return nil, fmt.Errorf("wait for this run to have the addresses alone: %w", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until no other run of the suite sends packets on this machine: %w", err)
		}
	}
}
