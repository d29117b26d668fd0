// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/traffic"
)

// These tests send real packets for cases that other IPVS load balancers have been seen to handle wrongly.

const loadBalancer = `
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  cluster-ip    [fd00:172:30::41]:80
  load-balancer 198.51.100.1:80
  load-balancer [2001:db8:51::1]:80
  node-port     30080
  endpoint      10.180.1.1:8080
  endpoint      [fd00:10:180:1::1]:8080
-- packets --
node                > 198.51.100.1:80        = 10.180.1.1:8080 masq
node                > [2001:db8:51::1]:80    = [fd00:10:180:1::1]:8080 masq
`

// A process on the node that calls a Service uses a source address of the node, to which other hosts can reply.
func TestKernelIPVSNodeCallsByItsOwnAddress(t *testing.T) {
	s := newFixture(t, "")
	s.serve(loadBalancer)
	for _, to := range []struct{ network, service, node string }{
		{"tcp4", "198.51.100.1:80", "192.0.2.10"}, {"tcp4", "172.30.0.41:80", "192.0.2.10"},
		{"tcp6", "[2001:db8:51::1]:80", "2001:db8::10"}, {"tcp6", "[fd00:172:30::41]:80", "2001:db8::10"},
	} {
		if seen := s.ask(to.network, to.service); !strings.Contains(seen, to.node) {
			t.Errorf("the endpoint of %s reports %q, want a client with source %s", to.service, seen, to.node)
		}
	}
}

// A packet to an endpoint on loopback keeps its loopback source address. Otherwise the guard of 127.0.0.0/8, which the
// iptables mode keeps until it is cleaned up, would drop the packet.
func TestKernelIPVSLoopbackStaysThere(t *testing.T) {
	s := newFixture(t, "")
	l, err := net.Listen("tcp", "127.77.1.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends when the listener is closed
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			fmt.Fprintln(conn, conn.RemoteAddr())
			conn.Close()
		}
	}()
	s.serve(loadBalancer)
	s.sync(sdk.Update{Set: []sdk.Service{{
		Name:      sdk.Name{Namespace: "ns1", Service: "here", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: addrPort("127.77.0.10:80"), Policy: sdk.Cluster}},
		Cluster:   []sdk.Endpoint{{Addr: addrPort("127.77.1.1:8080"), OnNode: true}},
	}}})
	if seen := s.ask("tcp4", "127.77.0.10:80"); !strings.HasPrefix(seen, "127.") {
		t.Errorf("the endpoint saw the client %s, want a loopback address", seen)
	}
}

// ask dials from the node, with a source address that the kernel chooses, and returns the endpoint's answer.
func (s *fixture) ask(network, to string) string {
	s.Helper()
	conn, err := net.DialTimeout(network, to, traffic.Timeout)
	if err != nil {
		s.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(traffic.Timeout))
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		s.Fatal(err)
	}
	return string(buf[:n])
}

// A process on the node that listens on all addresses is not reachable at another port of a Service's address. Pings to
// the address are answered.
func TestKernelIPVSGuardsTheHost(t *testing.T) {
	s := newFixture(t, "")
	s.serve(loadBalancer)
	l, err := net.Listen("tcp", ":9999")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ from, vip, network string }{
		{"192.0.2.7", "198.51.100.1", "tcp4"}, {"2001:db8::7", "2001:db8:51::1", "tcp6"},
	} {
		h, err := s.node.Host(netip.MustParseAddr(c.from))
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Dial(t.Context(), c.network, netip.MustParseAddr(c.from), netip.AddrPortFrom(netip.MustParseAddr(c.vip), 9999))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial from %s to %s port 9999: %v, want connection refused", c.from, c.vip, err)
		}
		if err := h.Do(func() error { return ping(c.network[3:], c.vip) }); err != nil {
			t.Errorf("%s pings %s: %v", c.from, c.vip, err)
		}
		if conn, err := net.DialTimeout(c.network, net.JoinHostPort(c.vip, "9999"), 20*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial from the node to %s port 9999: %v, %v, want connection refused", c.vip, conn, err)
		}
		if err := ping(c.network[3:], c.vip); err != nil {
			t.Errorf("the node pings %s: %v", c.vip, err)
		}
	}
}

// ping sends an echo request and waits for the reply.
func ping(version, to string) error {
	network, request, reply := "ip4:icmp", []byte{8, 0, 0xe6, 0xf5, 0x11, 0x09, 0, 1}, byte(0) // do not verify the checksum
	if version == "6" {
		network, request, reply = "ip6:ipv6-icmp", []byte{128, 0, 0, 0, 0x11, 0x09, 0, 1}, 129 // the kernel makes it
	}
	conn, err := net.Dial(network, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(traffic.Timeout))
	if _, err := conn.Write(request); err != nil {
		return err
	}
	for buf := make([]byte, 256); ; {
		n, _, err := conn.(*net.IPConn).ReadFrom(buf)
		if err != nil {
			return err
		}
		if n > 0 && buf[0] == reply {
			return nil
		}
	}
}
