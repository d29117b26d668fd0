// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// ports leaves the node those from first to last to give away, until the test ends: ports
// that are not given away otherwise, so that connections of before have none of them.
func (n *node) ports(firstAndLast string) {
	n.Helper()
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(firstAndLast), 0)
	}
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() {
		if err := os.WriteFile(file, before, 0); err != nil {
			n.Error(err)
		}
	})
}

// take listens on a port of the node's own address until the test ends; zero: any.
func (n *node) take(port uint16) uint16 {
	n.Helper()
	l, err := net.Listen("tcp4", netip.AddrPortFrom(nodeAddr, port).String())
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = l.Close() })
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// TestKernelFewPorts swaps on a node where every other port is taken, as callers of its
// own take them by the thousand: those that the host needs for its canary are found.
func TestKernelFewPorts(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	n.ports("20000 20399")
	other := 20001 - n.take(0)%2 // of those that the kernel does not give away first
	for i := range uint16(200) {
		n.take(other + 2*i)
	}
	for _, mode := range []string{"userspace", "iptables"} {
		n.swapTo(mode)
		if m := n.settled(mode); m.Last == nil || m.Last.Error != "" {
			t.Errorf("the swap to %s ended with %+v", mode, m.Last)
		}
	}
}

// TestKernelNoPort asks for a swap on a node without a port that is left for the canary.
// It is undone before anything has changed.
func TestKernelNoPort(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	n.ports("21000 21001")
	n.take(21000)
	n.take(21001)
	if out, err := n.verb("mode", "swap", "userspace", "--wait"); err == nil {
		t.Errorf("it went: %s", out)
	}
	if m := n.settled("iptables"); m.Last == nil || !strings.Contains(m.Last.Error, "make the canary") {
		t.Errorf("it ended with %+v", m.Last)
	}
	events, err := n.Events(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if strings.Contains(e.Message, "staging") {
			t.Errorf("it went on: %s", e.Message)
		}
	}
}
