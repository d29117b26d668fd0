// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Each caller has another port, until all were used.
func TestPorts(t *testing.T) {
	p := new(ports)
	seen := make(map[uint16]bool)
	for range lastPort - firstPort + 1 {
		port := p.next()
		if port < firstPort || port > lastPort || seen[port] {
			t.Fatalf("port %d", port)
		}
		seen[port] = true
	}
	if again := p.next(); again != firstPort {
		t.Errorf("after all of them: %d", again)
	}
}

// A testbed begins with none of the connections of the one before: the kernel sends who
// calls from the port of one that was reset not long ago to whom that one was sent.
func TestKernelForgets(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		meet(t, name)
	}
}

// meet has a caller led to a listener that says name, on a testbed of its own, and ends
// with a reset.
func meet(t *testing.T, name string) {
	client, node, vip := netip.MustParseAddr("198.18.0.7"), netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("172.30.0.9")
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	g, err := New()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if err := g.Own(node); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp4", netip.AddrPortFrom(node, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	rule := func(verb string) {
		words := []string{"-w", "-t", "nat", verb, "PREROUTING", "-d", vip.String(), "-p", "tcp", "-j", "DNAT", "--to-destination", listener.Addr().String()}
		if out, err := exec.Command("iptables", words...).CombinedOutput(); err != nil {
			t.Fatalf("iptables %s: %v: %s", verb, err, out)
		}
	}
	rule("-I")
	defer rule("-D")
	host, err := g.Host(client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	caller, err := host.Dial(ctx, "tcp4", client, netip.AddrPortFrom(vip, 80))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer caller.Close()
	called, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(called, name)
	_ = caller.SetDeadline(time.Now().Add(time.Minute))
	heard := make([]byte, 3)
	if _, err := io.ReadFull(caller, heard); err != nil || string(heard) != name {
		t.Errorf("%s heard %q, %v", name, heard, err)
	}
	_ = called.(*net.TCPConn).SetLinger(0)
	_ = called.Close()
	_, _ = caller.Read(heard) // until the reset is there
}
