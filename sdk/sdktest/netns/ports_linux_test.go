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

// TestKernelFlushesConntrack checks that a new testbed has no conntrack entries of an earlier one. Otherwise the kernel
// would send a connection from the port of a connection that was reset before to the endpoint of that connection.
func TestKernelFlushesConntrack(t *testing.T) {
	for _, name := range []string{"one", "two"} {
		connectAndReset(t, name)
	}
}

// connectAndReset creates a testbed and translates a caller's connection to a listener that sends name. The listener then
// resets the connection.
func connectAndReset(t *testing.T, name string) {
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
		t.Errorf("the caller received %q, %v; want %q", heard, err, name)
	}
	_ = called.(*net.TCPConn).SetLinger(0)
	_ = called.Close()
	_, _ = caller.Read(heard) // waits for the reset
}
