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
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/traffic"
)

// client is the address of a host outside.
var client = netip.MustParseAddr("198.18.0.7")

// On a node whose firewall drops everything in INPUT, health-check ports answer, and other ports do not.
func TestKernelHealthPort(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s, _ := g.Place(scenario(k.T, "load-balancer-local"))
		i := slices.IndexFunc(s.Services, func(svc sdk.Service) bool { return svc.HealthPort != 0 })
		port := s.Services[i].HealthPort
		for _, port := range []uint16{port, port + 1} {
			l, err := net.Listen("tcp", netip.AddrPortFrom(s.Node.Addrs[0], port).String())
			if err != nil {
				k.Fatal(err)
			}
			defer l.Close()
		}
		host, err := g.Host(client)
		if err != nil {
			k.Fatal(err)
		}
		answers := func(port uint16, timeout time.Duration) bool {
			return dialFrom(k, host, netip.AddrPortFrom(s.Node.Addrs[0], port), timeout)
		}
		program := "iptables-" + string(k.backend)
		k.run(program, "-P", "INPUT", "DROP")
		defer k.run(program, "-P", "INPUT", "ACCEPT")
		p := k.start()
		k.sync(p, s.Update(1))
		if answers(port, time.Second) {
			k.Error("the health-check port answers in Standby")
		}
		if k.role(p, sdk.Active); !answers(port, traffic.Timeout) || answers(port+1, time.Second) {
			k.Error("the health-check port does not answer, or another port does")
		}
	})
}

// Packets from outside to 127.0.0.0/8, which the kernel routes for node ports, do not reach listeners there
// (CVE-2020-8558).
func TestKernelGuardDropsMartians(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s, _ := g.Place(scenario(k.T, "node-port"))
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			k.Fatal(err)
		}
		defer l.Close()
		host, err := g.Host(client)
		if err != nil {
			k.Fatal(err)
		}
		err = host.Do(func() error { // send packets for 127.0.0.1 to the node
			if err := os.WriteFile(sysctl.RouteLocalnet, []byte("1"), 0o644); err != nil {
				return err
			}
			out, err := exec.Command("sh", "-c", `set -e
				ip route del table local local 127.0.0.0/8 dev lo 2>/dev/null || true
				ip route del table local local 127.0.0.1 dev lo 2>/dev/null || true
				ip route replace 127.0.0.1/32 $(ip route show default | sed 's/^default//; s/ proto.*//')`).CombinedOutput()
			if err != nil {
				k.Errorf("%s", out)
			}
			return err
		})
		if err != nil {
			k.Fatal(err)
		}
		k.eventually("the guard drops the client's packets", func() bool {
			if dialFrom(k, host, l.Addr().(*net.TCPAddr).AddrPort(), time.Second) {
				k.Error("a client outside reached 127.0.0.1")
			}
			packets := 0
			for line := range strings.Lines(k.run("iptables-"+string(k.backend), "-t", "filter", "-nvxL", localnetGuard)) {
				n := 0
				_, _ = fmt.Sscan(line, &n) // other lines have no number
				packets += n
			}
			return packets > 0
		})
		if err := dialFromNode(k.Context(), l.Addr().String()); err != nil {
			k.Error("the node itself cannot call 127.0.0.1: ", err)
		}
	})
}

// dialFrom reports whether a connection from host to an address succeeds.
func dialFrom(k kernel, host *netns.Host, to netip.AddrPort, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(k.Context(), timeout)
	defer cancel()
	conn, err := host.Dial(ctx, "tcp", client, to)
	if err == nil {
		conn.Close()
	}
	return err == nil
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
			k.strayAck(g, s.Services[0].Cluster[0].Addr)
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

// strayAck sends a TCP segment of a connection that never existed, which has only the ACK flag.
func (k kernel) strayAck(g *netns.Testbed, to netip.AddrPort) {
	k.Helper()
	host, err := g.Host(client)
	if err != nil {
		k.Fatal(err)
	}
	b := make([]byte, 20)
	binary.BigEndian.PutUint16(b[0:], 40126)
	binary.BigEndian.PutUint16(b[2:], to.Port())
	b[12], b[13] = 5<<4, 0x10
	source, destination := client.As4(), to.Addr().As4()
	sum := uint32(unix.IPPROTO_TCP + len(b))
	for _, part := range [][]byte{source[:], destination[:], b} {
		for i := 0; i < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	binary.BigEndian.PutUint16(b[16:], ^uint16(sum>>16+sum&0xffff))
	err = host.Do(func() error {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, b, 0, &unix.SockaddrInet4{Addr: destination})
	})
	if err != nil {
		k.Fatal(err)
	}
}
