// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/traffic"
)

// What other balancers that use IPVS have been seen to do wrong. Each is done right
// here, with real packets.

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

// A process of the node that calls an address of a Service does so by an address of
// the node: one that others can answer.
func TestKernelIPVSNodeCallsByItsOwnAddress(t *testing.T) {
	s := newStand(t, "")
	s.serve(loadBalancer)
	for _, to := range []struct{ network, service, node string }{
		{"tcp4", "198.51.100.1:80", "192.0.2.10"}, {"tcp4", "172.30.0.41:80", "192.0.2.10"},
		{"tcp6", "[2001:db8:51::1]:80", "2001:db8::10"}, {"tcp6", "[fd00:172:30::41]:80", "2001:db8::10"},
	} {
		if seen := s.ask(to.network, to.service); !strings.Contains(seen, to.node) {
			t.Errorf("calling %s, the endpoint says %q; it should have seen %s", to.service, seen, to.node)
		}
	}
}

// An endpoint on loopback is called from loopback, where it is at an address of that:
// a guard of 127.0.0.0/8, as the iptables mode has until it has gone, drops others.
func TestKernelIPVSLoopbackStaysThere(t *testing.T) {
	s := newStand(t, "")
	l, err := net.Listen("tcp", "127.77.1.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // ends with the listener
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
		t.Errorf("the endpoint was called by %s", seen)
	}
}

// ask calls from the node, by whichever address the kernel chooses, and returns what
// the endpoint says.
func (s *stand) ask(network, to string) string {
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

// A process of the node that listens on every address cannot be reached by an address
// of a Service at another port; that the address is alive may be asked.
func TestKernelIPVSGuardsTheHost(t *testing.T) {
	s := newStand(t, "")
	s.serve(loadBalancer)
	l, err := net.Listen("tcp", ":9999")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct{ from, vip, network string }{
		{"192.0.2.7", "198.51.100.1", "tcp4"}, {"10.180.0.9", "172.30.0.41", "tcp4"}, {"2001:db8::7", "2001:db8:51::1", "tcp6"},
	} {
		h, err := s.node.Host(netip.MustParseAddr(c.from))
		if err != nil {
			t.Fatal(err)
		}
		_, err = h.Dial(t.Context(), c.network, netip.MustParseAddr(c.from), netip.AddrPortFrom(netip.MustParseAddr(c.vip), 9999))
		if !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s calls %s port 9999: %v; it should be refused", c.from, c.vip, err)
		}
		if err := h.Do(func() error { return ping(c.network[3:], c.vip) }); err != nil {
			t.Errorf("%s pings %s: %v", c.from, c.vip, err)
		}
		if conn, err := net.DialTimeout(c.network, net.JoinHostPort(c.vip, "9999"), 20*time.Second); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("the node itself calls %s port 9999: %v, %v; it should be refused", c.vip, conn, err)
		}
		if err := ping(c.network[3:], c.vip); err != nil {
			t.Errorf("the node itself pings %s: %v", c.vip, err)
		}
	}
}

// ping sends an echo request and waits for the reply.
func ping(version, to string) error {
	network, request, reply := "ip4:icmp", []byte{8, 0, 0xe6, 0xf5, 0x11, 0x09, 0, 1}, byte(0) // the checksum is right
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

// found is the endpoint that answers a flow.
func (s *stand) found(f sdktest.Flow) netip.AddrPort {
	s.Helper()
	a, err := f.Ask(s.Context())
	if err != nil || a.Verdict != sdk.Forward {
		s.Fatalf("a flow: %s, %v", a, err)
	}
	return a.Endpoint
}

// What no endpoint near may answer is dropped, without a word: also what the node itself
// sends, which IPVS takes before filter sees it.
func TestKernelIPVSDropsForTheNodeToo(t *testing.T) {
	s := newStand(t, "")
	s.packets(s.serve(`
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80 local
  load-balancer 198.51.100.1:80 local from 198.18.0.0/15
  endpoint      10.180.1.1:8080
-- packets --
node       > 172.30.0.41:80  = drop
10.180.0.9 > 172.30.0.41:80  = drop
node       > 198.51.100.1:80 = drop
192.0.2.7  > 198.51.100.1:80 = drop
198.18.0.7 > 198.51.100.1:80 = drop
`))
}

// What is left of IPv6 goes with the rest.
func TestKernelIPVSCleanupLeavesNoIPv6(t *testing.T) {
	s := newStand(t, "")
	s.serve(loadBalancer)
	gone, err := s.plugin.Cleanup(t.Context(), sdk.Leftovers{})
	if err != nil || len(gone) == 0 {
		t.Fatalf("cleanup: %q, %v", gone, err)
	}
	for _, look := range [][]string{{"ipset", "list", "-n"}, {"ip6tables-legacy-save"}, {"iptables-legacy-save"}, {"ipvsadm", "-Sn"}, {"ip", "link"}} {
		if left := run(t, look[0], look[1:]...); strings.Contains(strings.ToUpper(left), "KUBE-") || look[0] == "ipvsadm" && left != "" {
			t.Errorf("%q still shows\n%s", look, left)
		}
	}
	for path, want := range map[string]string{"net/ipv4/vs/conntrack": "0", "net/ipv4/vs/expire_nodest_conn": "0"} {
		if have, err := os.ReadFile("/proc/sys/" + path); err != nil || strings.TrimSpace(string(have)) != want {
			t.Errorf("%s is %s, %v; before us it was %s", path, have, err, want)
		}
	}
}
