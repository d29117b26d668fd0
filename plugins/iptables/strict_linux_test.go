// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/traffic"
)

// outside has, for each family, the address of a client and the address of the node that it dials.
var outside = map[sdk.Family][2]netip.Addr{
	sdk.IPv4: {netip.MustParseAddr("198.18.0.7"), netip.MustParseAddr("192.0.2.10")},
	sdk.IPv6: {netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("2001:db8::10")},
}

// On a node whose firewall drops everything in INPUT and FORWARD, node ports and health-check ports work, and nothing
// else does.
func TestKernelStrictFirewall(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := strictScenario(k, g)
		stage, err := g.Open(k.Context(), nil, s)
		if err != nil {
			k.Fatal(err)
		}
		defer stage.Close()
		for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
			k.listen(netip.AddrPortFrom(outside[family][1], healthPort))
			k.listen(netip.AddrPortFrom(outside[family][1], healthPort+1))
		}
		defer k.strict()()
		p := k.start()
		k.sync(p, s.Update(1))
		for _, role := range []sdk.Role{sdk.Standby, sdk.Active} {
			k.role(p, role)
			var calls sync.WaitGroup // all at once, because dropped connections only wait for their timeout
			for _, svc := range s.Services {
				from, node := outside[svc.Name.Family][0], outside[svc.Name.Family][1]
				for _, c := range []struct {
					what string
					to   netip.AddrPort
					open bool
				}{
					{"a node port", netip.AddrPortFrom(node, svc.Frontends[0].Addr.Port()), role == sdk.Active},
					{"a health-check port", netip.AddrPortFrom(node, healthPort), role == sdk.Active},
					{"another port of the node", netip.AddrPortFrom(node, healthPort+1), false},
					{"a pod itself", svc.Cluster[0].Addr, false},
				} {
					timeout := time.Second
					if c.open {
						timeout = traffic.Timeout
					}
					calls.Go(func() {
						if err := dialFrom(k.Context(), g, from, c.to, timeout); (err == nil) != c.open {
							k.Errorf("%s, %s: %s at %s: %v", role, svc.Name.Family, c.what, c.to, err)
						}
					})
				}
			}
			calls.Wait()
		}
	})
}

const healthPort = 40123

// strictScenario returns a scenario with a node port in each family and a health-check port.
func strictScenario(k kernel, g *netns.Testbed) sdktest.Scenario {
	k.Helper()
	s := scenario(k.T, "node-port-local-ipv6")
	other := s.Services[0]
	s.Services = nil
	for family, ep := range map[sdk.Family]netip.AddrPort{
		sdk.IPv4: netip.MustParseAddrPort("10.180.1.1:8080"), sdk.IPv6: other.Cluster[0].Addr,
	} {
		svc := sdk.Service{
			Name:       sdk.Name{Namespace: "ns1", Service: "strict", Protocol: sdk.TCP, Family: family},
			Frontends:  []sdk.Frontend{{Kind: sdk.NodePort, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(iptables.Unspecified(family), 30080)}},
			Cluster:    []sdk.Endpoint{{Addr: ep}},
			HealthPort: healthPort,
		}
		s.Services = append(s.Services, svc)
	}
	s.Packets = nil
	s, left := g.Place(s)
	if len(left) > 0 {
		k.Fatal(left)
	}
	return s
}

// listen makes the node listen at an address until the test ends.
func (k kernel) listen(at netip.AddrPort) {
	k.Helper()
	l, err := net.Listen("tcp", at.String())
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { l.Close() })
}

// strict sets the policies to DROP, except for what IPv6 needs to work.
func (k kernel) strict() (undo func()) {
	k.Helper()
	policy := func(target string) {
		for _, program := range []string{"iptables-", "ip6tables-"} {
			for _, chain := range []string{"INPUT", "FORWARD"} {
				k.run(program+string(k.backend), "-P", chain, target)
			}
		}
	}
	k.run("ip6tables-"+string(k.backend), "-A", "INPUT", "-p", "ipv6-icmp", "-j", "ACCEPT")
	policy("DROP")
	return func() { policy("ACCEPT") }
}

// dialFrom opens a connection from one of the hosts, and closes it.
func dialFrom(ctx context.Context, g *netns.Testbed, from netip.Addr, to netip.AddrPort, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	host, err := g.Host(from)
	if err != nil {
		return err
	}
	conn, err := host.Dial(ctx, "tcp", from, to)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Packets from outside to 127.0.0.0/8, which the kernel routes for node ports, do not reach listeners there.
func TestKernelGuardDropsMartians(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s, _ := g.Place(scenario(k.T, "node-port"))
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		secret := netip.MustParseAddrPort("127.0.0.1:40125")
		k.listen(secret)
		client := outside[sdk.IPv4][0]
		host, err := g.Host(client)
		if err != nil {
			k.Fatal(err)
		}
		k.martian(host)
		k.eventually("the guard sees the client's packets", func() bool {
			if err := dialFrom(k.Context(), g, client, secret, time.Second); err == nil {
				k.Error("a client outside reached 127.0.0.1")
			}
			return k.packets("KUBE-LOCALNET-GUARD") > 0
		})
		if err := dialFromNode(k.Context(), secret.String()); err != nil {
			k.Error("the node itself cannot call 127.0.0.1: ", err)
		}
	})
}

// martian makes a host send packets for 127.0.0.1 to the node.
func (k kernel) martian(host *netns.Host) {
	k.Helper()
	err := host.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0o644); err != nil {
			return err
		}
		via, err := exec.Command("sh", "-c", `set -e
			ip route del table local local 127.0.0.0/8 dev lo 2>/dev/null || true
			ip route del table local local 127.0.0.1 dev lo 2>/dev/null || true
			ip route add 127.0.0.1/32 $(ip route show default | sed 's/^default//; s/ proto.*//')`).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, via)
		}
		return nil
	})
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() {
		_ = host.Do(func() error { return exec.Command("ip", "route", "del", "127.0.0.1/32").Run() })
	})
}

// packets returns how many packets the rules of a filter chain have matched.
func (k kernel) packets(chain string) int {
	k.Helper()
	sum := 0
	for line := range strings.Lines(k.run("iptables-"+string(k.backend), "-t", "filter", "-L", chain, "-v", "-x", "-n")) {
		n := 0
		if _, err := fmt.Sscan(line, &n); err == nil {
			sum += n
		}
	}
	return sum
}

// A forwarded packet in conntrack state INVALID is dropped and counted, because its reply would be reset. A kernel with
// tcp_be_liberal treats no packet as invalid, so there is no rule.
func TestKernelDropsInvalid(t *testing.T) {
	g := world(t)
	const loose, beLiberal = netfilter + "nf_conntrack_tcp_loose", netfilter + "nf_conntrack_tcp_be_liberal"
	onKernel(t, func(k kernel) {
		before := values(k, loose)
		k.Cleanup(func() { _ = os.WriteFile(loose, []byte(before), 0) })
		if err := os.WriteFile(loose, []byte("0"), 0); err != nil {
			k.Skip("needs to set ", loose)
		}
		s, _ := g.Place(scenario(k.T, "node-port"))
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		if !counting() {
			k.Skip("needs a kernel and programs with nfacct")
		}
		had := sampleValue(p, accounts[invalidDropped])
		k.eventually("the packet is dropped and counted", func() bool {
			k.strayAck(g, outside[sdk.IPv4][0], s.Services[0].Cluster[0].Addr)
			return sampleValue(p, accounts[invalidDropped]) > had
		})
		liberal := s.Node
		liberal.Conntrack.TCPBeLiberal = true
		k.sync(p, sdk.Update{From: 1, To: 2, Node: &liberal})
		if rules := k.tables(sdk.IPv4)[filter(forward)]; strings.Contains(fmt.Sprint(rules), "INVALID") {
			k.Errorf("with tcp_be_liberal there is still a rule for INVALID: %q", rules)
		}
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil || values(k, beLiberal) != "0" {
			k.Errorf("after Cleanup, tcp_be_liberal is %s: %v", values(k, beLiberal), err)
		}
	})
}

// strayAck sends a TCP segment of a connection that never existed.
func (k kernel) strayAck(g *netns.Testbed, from netip.Addr, to netip.AddrPort) {
	k.Helper()
	host, err := g.Host(from)
	if err != nil {
		k.Fatal(err)
	}
	err = host.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, ackSegment(from, to), 0, &unix.SockaddrInet4{Addr: to.Addr().As4()})
	})
	if err != nil {
		k.Fatal(err)
	}
}

// ackSegment returns a TCP segment that has only the ACK flag.
func ackSegment(from netip.Addr, to netip.AddrPort) []byte {
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b[0:], 40126)
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint32(b[4:], 1)
	binary.BigEndian.PutUint32(b[8:], 1)
	b[12], b[13] = 5<<4, 0x10
	binary.BigEndian.PutUint16(b[14:], 1000)
	source, destination := from.As4(), to.Addr().As4()
	sum := uint32(unix.IPPROTO_TCP + len(b))
	for _, part := range [][]byte{source[:], destination[:], b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum))
	return b
}
