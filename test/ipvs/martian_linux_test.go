// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// hears calls from a host around the node, and reports why nothing answers, if so.
func (n *node) hears(from netip.Addr, to netip.AddrPort) error {
	n.Helper()
	host, err := n.testbed.Host(from)
	if err != nil {
		n.Fatal(err)
	}
	const wait = 2 * time.Second
	ctx, cancel := context.WithTimeout(n.Context(), wait)
	defer cancel()
	conn, err := host.Dial(ctx, "tcp4", from, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait))
	_, err = conn.Read(make([]byte, 1)) // what answers speaks first
	return err
}

// A neighbour that sends to 127.0.0.1 by way of the node reaches nobody
// (CVE-2020-8558): not while iptables serves, which has the kernel route that address,
// not while the mode changes, and not in the ipvs mode, in which it is not routed.
func TestKernelIPVSMartian(t *testing.T) {
	n := newNode(t)
	s, stage := n.shows("dual-stack")
	own := answers(t)
	client := netip.MustParseAddr("192.0.2.7")
	neighbour, err := n.testbed.Host(client)
	if err != nil {
		t.Fatal(err)
	}
	if err := neighbour.Do(outwards); err != nil {
		t.Fatalf("a neighbour that sends 127.0.0.1 out: %v", err)
	}
	const routes = "/proc/sys/net/ipv4/conf/all/route_localnet"
	before := strings.TrimSpace(n.shell("cat " + routes))
	n.shell("echo 1 >" + routes)
	n.until("without a guard the node answers", func() error { return n.hears(client, own) })
	n.shell("echo " + before + " >" + routes)
	n.write("host.yaml", n.config("iptables"))
	n.start()
	n.until("the iptables mode has the kernel route 127.0.0.0/8", func() error {
		if now := strings.TrimSpace(n.shell("cat " + routes)); now != "1" {
			return fmt.Errorf("route_localnet is %s", now)
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	answered := make(chan int, 1)
	go func() { // ends with ctx
		count := 0
		for ctx.Err() == nil {
			if n.hears(client, own) == nil {
				count++
			}
		}
		answered <- count
	}()
	n.swap(s, stage, "iptables", "ipvs")
	cancel()
	if count := <-answered; count > 0 {
		t.Errorf("a neighbour reached 127.0.0.1 of the node %d times while the mode changed", count)
	}
	if now := strings.TrimSpace(n.shell("cat " + routes)); now != before {
		t.Errorf("in the ipvs mode route_localnet is %s, and before us it was %s", now, before)
	}
	if n.hears(client, own) == nil {
		t.Error("a neighbour reaches 127.0.0.1 of the node in the ipvs mode")
	}
}

// answers is who listens on 127.0.0.1 of the node, until the test ends.
func answers(t *testing.T) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // ends with l
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "here\n")
			conn.Close()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// outwards makes this namespace send what is for 127.0.0.1 to its router, and take
// answers from there.
func outwards() error {
	for _, line := range []string{
		"echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet",
		"ip rule add pref 10 lookup local",
		"ip rule add pref 5 to 127.0.0.1 lookup main",
		"ip rule del pref 0",
	} {
		if out, err := exec.Command("sh", "-c", line).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, out)
		}
	}
	return nil
}
