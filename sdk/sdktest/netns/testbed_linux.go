// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A Testbed is the node and the hosts around it. The node is the namespace of the process,
// unless the Testbed comes from Apart. Its methods are safe for concurrent use, except for
// Close.
type Testbed struct {
	home, ns vnetns.NsHandle // namespaces of the test and of the node
	node     *netlink.Handle

	ports *ports // source ports of callers

	mu    sync.Mutex // guards the fields below
	hosts map[string]*Host
	pods  []*Host             // hosts behind other hosts
	addrs map[netip.Addr]bool // of the node
	sctp  bool
}

var _ sdktest.Testbed = (*Testbed)(nil)

// New returns the testbed around the process's namespace, which must not be the machine's: see
// Main. Close removes the hosts.
func New() (*Testbed, error) {
	if err := ownNamespace(); err != nil {
		return nil, err
	}
	return newTestbed(vnetns.Get)
}

// Apart is like New, but with a namespace of its own as the node: a process can have several of
// them, with the same addresses.
func Apart() (*Testbed, error) {
	return newTestbed(vnetns.New)
}

// newTestbed returns a testbed whose node is in the namespace that open returns.
func newTestbed(open func() (vnetns.NsHandle, error)) (*Testbed, error) {
	home, err := vnetns.Get()
	if err != nil {
		return nil, fmt.Errorf("open the test's namespace: %w", err)
	}
	g := &Testbed{home: home, ports: new(ports), hosts: make(map[string]*Host), addrs: make(map[netip.Addr]bool), sctp: hasSCTP()}
	err = inOtherNamespace(home, func() (err error) {
		if g.ns, err = open(); err == nil {
			g.node, err = netlink.NewHandle()
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the node's namespace: %w", err), home.Close())
	}
	if err := g.build(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func ownNamespace() error {
	mine, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("read the network namespace of this process: %w", err)
	}
	machines, err := os.Readlink("/proc/1/ns/net")
	if err == nil && mine == machines {
		return errors.New("this is the machine's own network namespace: let TestMain call netns.Main")
	}
	return nil
}

// build enables routing on the node, and connects it to outside.
func (g *Testbed) build() error {
	if err := g.Node().Do(func() error { return writeSysctls(routing) }); err != nil {
		return err
	}
	if err := errors.Join(setUp(g.node, "lo"), g.flushConntrack()); err != nil {
		return err
	}
	outside, err := g.add(uplink)
	if err != nil {
		return err
	}
	return g.defaultRoutes(outside)
}

// flushConntrack deletes the conntrack entries of an earlier testbed in this namespace, whose callers
// disappeared without closing their connections: the kernel would send new connections from the
// same ports to the old endpoints.
func (g *Testbed) flushConntrack() error {
	err := g.node.ConntrackTableFlush(netlink.ConntrackTable)
	if err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EPROTONOSUPPORT) { // these mean that the kernel tracks nothing
		return fmt.Errorf("flush the node's conntrack table: %w", err)
	}
	return nil
}

// Close removes the hosts and their connections to the node.
func (g *Testbed) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, pod := range g.pods {
		errs = append(errs, pod.close())
	}
	for _, h := range g.hosts {
		errs = append(errs, h.close()) // and with uplink the addresses of the node
	}
	g.node.Close()
	return errors.Join(append(errs, g.ns.Close(), g.home.Close())...)
}

// Place adds the addresses of the node in s to the node, and leaves out packets that this
// kernel cannot send.
func (g *Testbed) Place(s sdktest.Scenario) (sdktest.Scenario, []string) {
	var leftOut []string
	placed := s
	placed.Packets = nil
	for _, addr := range s.Node.Addrs {
		if err := g.Own(addr); err != nil {
			return placed, []string{err.Error()}
		}
	}
	for _, p := range s.Packets {
		if p.Protocol == sdk.SCTP && !g.sctp {
			leftOut = append(leftOut, fmt.Sprintf("%q: this kernel has no SCTP", p.Text))
			continue
		}
		placed.Packets = append(placed.Packets, p)
	}
	return placed, leftOut
}

// Own adds an address to the node, on uplink. It is not removed.
func (g *Testbed) Own(addr netip.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.addrs[addr] || addr.IsLoopback() || addr.IsUnspecified() {
		return nil
	}
	if err := addAddr(g.node, uplink, addr); err != nil {
		return err
	}
	g.addrs[addr] = true
	return nil
}

func (g *Testbed) removeAddr(addr netip.Addr) error {
	link, err := g.node.LinkByName(uplink)
	if err != nil {
		return err
	}
	return g.node.AddrDel(link, &netlink.Addr{IPNet: fullPrefix(addr)})
}

// Open starts every endpoint of s, each on its own host.
func (g *Testbed) Open(ctx context.Context, _ sdk.Dataplane, s sdktest.Scenario) (sdktest.Stage, error) {
	return sdktest.OpenStage(ctx, network{g}, s)
}

// Node returns the node itself.
func (g *Testbed) Node() *Host { return &Host{home: g.home, ns: g.ns, ports: g.ports} }

// Host returns the host with addr: the node for one of its own addresses, otherwise a host
// behind it.
func (g *Testbed) Host(addr netip.Addr) (*Host, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.addrs[addr] || addr.IsLoopback() {
		return g.Node(), nil
	}
	return g.host(addr.String(), addr)
}

// Behind returns the host with addr whose packets arrive at the node on the named device.
// Several addresses may share a device.
func (g *Testbed) Behind(device string, addr netip.Addr) (*Host, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.host(device, addr)
}

// Pod returns a new host behind another one, as a pod is behind its node: all its packets pass
// through that host.
func (g *Testbed) Pod(node *Host, addrs ...netip.Addr) (*Host, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pod, err := g.behind(node.handle, fmt.Sprintf("veth%d", len(g.pods)))
	if err != nil {
		return nil, err
	}
	g.pods = append(g.pods, pod)
	for _, addr := range addrs {
		if err := errors.Join(pod.addAddr(addr), node.routeAddr(addr)); err != nil {
			return nil, err
		}
	}
	return pod, nil
}

// Lead routes addr to h, even if h does not have it, as a router does with the addresses of a
// load balancer.
func (g *Testbed) Lead(addr netip.Addr, h *Host) error { return h.routeAddr(addr) }

func (g *Testbed) host(name string, addr netip.Addr) (h *Host, err error) {
	h, ok := g.hosts[name]
	if !ok {
		if h, err = g.add(name); err != nil {
			return nil, err
		}
	}
	return h, h.addAddr(addr)
}

// A network provides the sockets of a testbed's hosts.
type network struct{ *Testbed }

func (n network) Listen(ctx context.Context, protocol sdk.Protocol, at netip.AddrPort) (io.Closer, error) {
	if protocol == sdk.SCTP && !n.sctp {
		return nil, nil
	}
	h, err := n.Host(at.Addr())
	if err != nil {
		return nil, err
	}
	return h.listen(ctx, protocol, at)
}

func (n network) Dial(ctx context.Context, p sdktest.Packet) (net.Conn, error) {
	h, leave, err := n.caller(p)
	if err != nil {
		return nil, err
	}
	conn, err := h.Dial(ctx, p.Protocol.String(), p.From.Addr, p.To)
	if err != nil {
		leave()
		return nil, err
	}
	return call{conn, leave}, nil
}

// A call is a connection that also removes the caller's temporary address when it is closed.
type call struct {
	net.Conn
	leave func()
}

func (c call) Close() error {
	defer c.leave()
	return c.Conn.Close()
}

// caller returns the host that sends p. If the node calls with an address that it does not
// have, it gets the address for the duration of the flow, as if a dataplane had assigned it.
func (g *Testbed) caller(p sdktest.Packet) (h *Host, leave func(), err error) {
	nothing := func() {}
	switch {
	case p.From.From == sdk.OnNode:
		h := g.Node()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.addrs[p.From.Addr] || p.From.Addr.IsLoopback() {
			return h, nothing, nil
		}
		if err := addAddr(g.node, uplink, p.From.Addr); err != nil {
			return nil, nil, err
		}
		return h, func() { _ = g.removeAddr(p.From.Addr) }, nil
	case p.Interface != "":
		h, err := g.Behind(p.Interface, p.From.Addr)
		return h, nothing, err
	}
	h, err = g.Host(p.From.Addr)
	return h, nothing, err
}

// Verdict interprets a timeout as a drop, and a refusal as a rejection. Any other error means that
// no rule handled the packet, which is only expected if no Service serves the packet.
func (network) Verdict(err error, p sdktest.Packet) (sdktest.Answer, error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return sdktest.Answer{Verdict: sdk.Drop}, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return sdktest.Answer{Verdict: sdk.Reject}, nil
	case p.Want.Unserved && unreachable(err):
		return sdktest.Answer{Verdict: sdk.Reject}, nil
	}
	return sdktest.Answer{}, fmt.Errorf("no rule handled the packet: %w", err)
}

// unreachable reports whether err is the answer of outside, or that of a node without a route.
func unreachable(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EACCES)
}
