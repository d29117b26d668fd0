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
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	vnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A Host is a network namespace: the node's, or one behind it.
type Host struct {
	home, ns vnetns.NsHandle // namespaces of the test and of the host
	node     *netlink.Handle // handle of the namespace it is behind: the node's or, for a pod, that of its node
	device   string          // the node's end of its veth pair
	handle   *netlink.Handle
	addrs    map[netip.Addr]bool
	ports    *ports // shared by the whole testbed
}

// Do calls f on a thread in the host's namespace. Sockets that f opens stay in that namespace.
func (h *Host) Do(f func() error) error {
	return inOtherNamespace(h.home, func() error {
		if err := vnetns.Set(h.ns); err != nil {
			return fmt.Errorf("enter a host's namespace: %w", err)
		}
		return f()
	})
}

// inOtherNamespace calls f on a thread that may change its namespace, and then returns the thread to home.
func inOtherNamespace(home vnetns.NsHandle, f func() error) (err error) {
	runtime.LockOSThread()
	defer func() {
		if back := vnetns.Set(home); back != nil {
			err = errors.Join(err, fmt.Errorf("return from a host's namespace: %w", back))
			return // keep the thread locked, so that it ends with its goroutine
		}
		runtime.UnlockOSThread()
	}()
	return f()
}

// Dial opens a connection from one of the host's addresses. The network may also be "sctp".
func (h *Host) Dial(ctx context.Context, network string, from netip.Addr, to netip.AddrPort) (conn net.Conn, err error) {
	err = h.Do(func() error {
		for range 1000 {
			at := netip.AddrPortFrom(from, h.ports.next())
			d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at), KeepAlive: -1}
			if strings.HasPrefix(network, "udp") {
				d.LocalAddr = net.UDPAddrFromAddrPort(at)
			}
			var over string
			d.Control, over = control(network)
			conn, err = d.DialContext(ctx, over, to.String())
			if !errors.Is(err, syscall.EADDRINUSE) {
				break
			}
		}
		return err
	})
	return conn, err
}

// Listen opens a listener on one of the host's addresses.
func (h *Host) Listen(ctx context.Context, network string, at netip.AddrPort) (l net.Listener, err error) {
	err = h.Do(func() error {
		var c net.ListenConfig
		c.Control, network = control(network)
		l, err = c.Listen(ctx, network, at.String())
		return err
	})
	return l, err
}

// ListenPacket opens a socket for datagrams on one of the host's addresses.
func (h *Host) ListenPacket(ctx context.Context, network string, at netip.AddrPort) (c net.PacketConn, err error) {
	err = h.Do(func() error {
		c, err = new(net.ListenConfig).ListenPacket(ctx, network, at.String())
		return err
	})
	return c, err
}

// Range of callers' source ports: above those of node ports.
const firstPort, lastPort = 33000, 60999

// ports assigns each caller a different port until all have been used. If a port is reused soon
// for the same destination, the kernel sends the new connection where it sent the previous one,
// which conntrack remembers for minutes.
type ports struct{ given atomic.Uint32 }

func (p *ports) next() uint16 {
	return uint16(firstPort + (p.given.Add(1)-1)%(lastPort-firstPort+1))
}

// uplink is the node's device to outside. It has the node's addresses.
const uplink = "uplink"

// Address of the node's end of every veth pair, as its host sees it. No device has it: hosts
// have a permanent neighbour entry.
var (
	gateway4 = netip.MustParseAddr("169.254.1.1")
	gateway6 = netip.MustParseAddr("fe80::1")
)

// routers are the source addresses of outside.
var routers = []netip.Addr{netip.MustParseAddr("192.0.0.8"), netip.MustParseAddr("100::8")}

// routing are the sysctls of every namespace. They disable rate limits for ICMP errors, because
// a missing error would be taken for a drop. A rate of 0 is not enough: errors about routes
// (ip_error) share the tokens of inet_peer_xrlim_allow with it. With the mask, only the burst
// of ip_error remains: 5, and then 1 per second for each sender.
var routing = map[string]string{
	"net/ipv4/ip_forward":                 "1",
	"net/ipv4/conf/all/rp_filter":         "0",
	"net/ipv4/conf/default/rp_filter":     "0",
	"net/ipv4/icmp_ratelimit":             "0",
	"net/ipv4/icmp_ratemask":              "0",
	"net/ipv4/icmp_msgs_per_sec":          "100000",
	"net/ipv4/icmp_msgs_burst":            "100000",
	"net/ipv6/conf/all/forwarding":        "1",
	"net/ipv6/conf/default/accept_dad":    "0",
	"net/ipv6/conf/default/dad_transmits": "0",
	"net/ipv6/icmp/ratelimit":             "0",
}

// writeSysctls writes sysctls in the calling thread's namespace. It skips those that this
// kernel does not have.
func writeSysctls(settings map[string]string) error {
	for name, value := range settings {
		err := os.WriteFile("/proc/sys/"+name, []byte(value), 0)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, os.ErrPermission) {
			return fmt.Errorf("set %s to %s: %w", name, value, err)
		}
	}
	return nil
}

// add creates a host and connects it to the node. If the name is a valid device name, the
// node's end gets that name.
func (g *Testbed) add(name string) (*Host, error) {
	device := name
	if strings.ContainsAny(name, ".:") {
		device = fmt.Sprintf("to%d", len(g.hosts))
	}
	h, err := g.behind(g.node, device)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	g.hosts[name] = h
	return h, nil
}

// behind creates a host that is reached through a device of node.
func (g *Testbed) behind(node *netlink.Handle, device string) (*Host, error) {
	h := &Host{home: g.home, node: node, device: device, addrs: make(map[netip.Addr]bool), ports: g.ports}
	if err := h.unshare(); err != nil {
		return nil, fmt.Errorf("make a namespace behind %s: %w", device, err)
	}
	if err := h.connect(); err != nil {
		return nil, errors.Join(fmt.Errorf("connect a namespace by %s: %w", device, err), h.close())
	}
	return h, nil
}

// unshare creates the host's namespace, with nothing but sysctls in it.
func (h *Host) unshare() error {
	return inOtherNamespace(h.home, func() (err error) {
		if h.ns, err = vnetns.New(); err != nil {
			return err
		}
		h.handle, err = netlink.NewHandle()
		return errors.Join(err, writeSysctls(routing))
	})
}

// connect creates the veth pair: device at the node, eth0 at the host.
func (h *Host) connect() error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = h.device
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(h.ns)}
	if err := h.node.LinkAdd(pair); err != nil {
		return fmt.Errorf("make veth pair %s: %w", h.device, err)
	}
	if err := errors.Join(setUp(h.handle, "lo"), setUp(h.handle, "eth0"), setUp(h.node, h.device)); err != nil {
		return err
	}
	there, err := waitForLink(h.node, h.device)
	if err != nil {
		return err
	}
	here, err := waitForLink(h.handle, "eth0")
	if err != nil {
		return err
	}
	for _, gateway := range []netip.Addr{gateway4, gateway6} {
		if err := addDefaultRoute(h.handle, here, gateway, there.Attrs().HardwareAddr); err != nil {
			return err
		}
	}
	return nil
}

// defaultRoutes routes everything that the node has no other route for to outside, which
// rejects it.
func (g *Testbed) defaultRoutes(outside *Host) error {
	link, err := g.node.LinkByName(outside.device)
	if err != nil {
		return err
	}
	peer, err := outside.handle.LinkByName("eth0")
	if err != nil {
		return err
	}
	for _, gateway := range []netip.Addr{gateway4, gateway6} {
		if err := addDefaultRoute(g.node, link, gateway, peer.Attrs().HardwareAddr); err != nil {
			return err
		}
	}
	for _, addr := range routers {
		if err := outside.addAddr(addr); err != nil {
			return err
		}
	}
	return errors.Join(outside.prohibitAll(netlink.FAMILY_V4, netip.IPv4Unspecified()), outside.prohibitAll(netlink.FAMILY_V6, netip.IPv6Unspecified()))
}

// prohibitAll makes h answer all packets with "administratively prohibited". No rule in a test
// sends that answer, and UDP sockets receive it, too.
func (h *Host) prohibitAll(family int, every netip.Addr) error {
	const table = 100
	rule := netlink.NewRule()
	rule.IifName, rule.Table, rule.Family, rule.Priority = "eth0", table, family, 1
	if err := h.handle.RuleAdd(rule); err != nil {
		return fmt.Errorf("add the policy rule for incoming packets: %w", err)
	}
	all := &net.IPNet{IP: every.AsSlice(), Mask: net.CIDRMask(0, every.BitLen())}
	route := &netlink.Route{Type: unix.RTN_PROHIBIT, Table: table, Family: family, Dst: all}
	if err := h.handle.RouteAdd(route); err != nil {
		return fmt.Errorf("add the prohibit route: %w", err)
	}
	return nil
}

// addDefaultRoute routes everything by gateway, which has the address mac.
func addDefaultRoute(h *netlink.Handle, link netlink.Link, gateway netip.Addr, mac net.HardwareAddr) error {
	if err := addNeighbour(h, link, gateway, mac); err != nil {
		return err
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
	if err := h.RouteReplace(route); err != nil {
		return fmt.Errorf("route by %s: %w", gateway, err)
	}
	return nil
}

// addNeighbour adds a permanent neighbour entry, so that no neighbour discovery is needed.
func addNeighbour(h *netlink.Handle, link netlink.Link, addr netip.Addr, mac net.HardwareAddr) error {
	err := h.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac})
	if err != nil {
		return fmt.Errorf("add the neighbour entry of %s: %w", addr, err)
	}
	return nil
}

// addAddr adds an address to the host, and a route to it to the node. If two hosts have the same
// address, the last one that joined gets the packets.
func (h *Host) addAddr(addr netip.Addr) error {
	if !h.addrs[addr] {
		if err := addAddr(h.handle, "eth0", addr); err != nil {
			return err
		}
		h.addrs[addr] = true
	}
	return h.routeAddr(addr)
}

// routeAddr routes addr from the node to the host, which may forward it.
func (h *Host) routeAddr(addr netip.Addr) error {
	link, err := h.node.LinkByName(h.device)
	if err != nil {
		return err
	}
	eth0, err := h.handle.LinkByName("eth0")
	if err != nil {
		return err
	}
	if err := addNeighbour(h.node, link, addr, eth0.Attrs().HardwareAddr); err != nil {
		return err
	}
	if err := h.node.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: fullPrefix(addr)}); err != nil {
		return fmt.Errorf("route to %s: %w", addr, err)
	}
	return nil
}

// close removes the host. Its end of the veth pair disappears with the node's end.
func (h *Host) close() error {
	var errs []error
	link, err := h.node.LinkByName(h.device)
	if err == nil {
		errs = append(errs, h.node.LinkDel(link))
	} else if !errors.As(err, &netlink.LinkNotFoundError{}) {
		errs = append(errs, err)
	}
	if h.handle != nil {
		h.handle.Close()
	}
	if h.ns.IsOpen() {
		errs = append(errs, h.ns.Close())
	}
	return errors.Join(errs...)
}

func setUp(h *netlink.Handle, name string) error {
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.LinkSetUp(link)
	}
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}

// waitForLink waits until the kernel has noticed that a device's other end is up. Before that,
// packets are lost.
func waitForLink(h *netlink.Handle, name string) (link netlink.Link, err error) {
	err = wait(func() error {
		if link, err = h.LinkByName(name); err == nil && link.Attrs().OperState != netlink.OperUp {
			err = fmt.Errorf("%s is %s, and not up", name, link.Attrs().OperState)
		}
		return err
	})
	return link, err
}

// wait calls f until it returns nil, for up to 30 seconds.
func wait(f func() error) error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		if err := f(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func addAddr(h *netlink.Handle, name string, addr netip.Addr) error {
	flags := 0
	if addr.Is6() {
		flags = unix.IFA_F_NODAD // no duplicate address detection: usable at once
	}
	link, err := h.LinkByName(name)
	if err == nil {
		err = h.AddrAdd(link, &netlink.Addr{IPNet: fullPrefix(addr), Flags: flags})
	}
	if errors.Is(err, syscall.EEXIST) {
		return nil
	}
	if err == nil {
		err = waitLocal(h, addr)
	}
	if err != nil {
		return fmt.Errorf("add %s to %s: %w", addr, name, err)
	}
	return nil
}

// waitLocal waits until the kernel delivers packets for addr locally. For IPv6 this takes a
// while after the address was added; until then the kernel forwards them.
func waitLocal(h *netlink.Handle, addr netip.Addr) error {
	return wait(func() error {
		routes, err := h.RouteGet(addr.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		return fmt.Errorf("the kernel does not deliver packets locally: routes %v, error %v", routes, err)
	})
}

// fullPrefix returns addr as a prefix of full length.
func fullPrefix(addr netip.Addr) *net.IPNet {
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
}

// Answer starts an endpoint (sdktest.Echo) on h. Close ends it.
func Answer(ctx context.Context, h *Host, protocol sdk.Protocol, at netip.AddrPort) (io.Closer, error) {
	l, err := h.listen(ctx, protocol, at)
	if err != nil {
		return nil, fmt.Errorf("listen as endpoint %s: %w", at, err)
	}
	go sdktest.Echo(l, at) // ends when l is closed
	return l, nil
}

func (h *Host) listen(ctx context.Context, protocol sdk.Protocol, at netip.AddrPort) (io.Closer, error) {
	if protocol == sdk.UDP {
		return h.ListenPacket(ctx, "udp", at)
	}
	l, err := h.Listen(ctx, protocol.String(), at)
	for end := time.Now().Add(former); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(former / 100)
		l, err = h.Listen(ctx, protocol.String(), at)
	}
	return l, err
}

// former limits the wait for the end of an endpoint from an earlier check that was cut off.
const former = 2 * time.Second

// hasSCTP reports whether this kernel has SCTP or can load its module.
func hasSCTP() bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, unix.IPPROTO_SCTP)
	if err == nil {
		unix.Close(fd)
	}
	return err == nil
}

// control returns the Control function of a socket, and the network to open it in. Package net
// does not support SCTP, but an SCTP socket that was created like a TCP socket behaves like one.
func control(network string) (func(network, address string, raw syscall.RawConn) error, string) {
	if network != "sctp" {
		return nil, network
	}
	return replaceBySCTP, "tcp"
}

// replaceBySCTP puts an SCTP socket in the place of a TCP socket.
func replaceBySCTP(network, _ string, raw syscall.RawConn) error {
	domain := unix.AF_INET
	if network == "tcp6" {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.IPPROTO_SCTP)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // otherwise the address may still be in use
	var duplicated error
	err = raw.Control(func(old uintptr) { duplicated = unix.Dup3(fd, int(old), unix.O_CLOEXEC) })
	return errors.Join(err, duplicated)
}
