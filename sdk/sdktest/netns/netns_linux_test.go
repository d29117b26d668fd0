// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bufio"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

func TestMain(m *testing.M) { Main(m) }

// testbed returns a testbed that is closed at the end of the test. It skips the test without root.
func testbed(t *testing.T) *Testbed {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	g, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// TestKernelHostsReachEachOther checks that hosts reach each other through the node, in both families, and see the
// caller's address.
func TestKernelHostsReachEachOther(t *testing.T) {
	g := testbed(t)
	for _, c := range []struct {
		protocol sdk.Protocol
		from, to string
	}{
		{sdk.TCP, "198.18.0.7", "10.180.0.1:8080"},
		{sdk.UDP, "198.18.0.7", "10.180.0.1:8080"},
		{sdk.TCP, "2001:db8::7", "[fd00:10:180::1]:8080"},
		{sdk.UDP, "2001:db8::7", "[fd00:10:180::1]:8080"},
		{sdk.TCP, "10.180.0.1", "192.0.2.10:9000"}, // the node itself answers
		{sdk.TCP, "192.0.2.10", "10.180.0.1:8080"}, // and calls
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.from, c.to, c.protocol), func(t *testing.T) {
			p := sdktest.Packet{From: sdk.Caller{Addr: netip.MustParseAddr(c.from)}, To: netip.MustParseAddrPort(c.to), Protocol: c.protocol}
			if c.from == "192.0.2.10" {
				p.From.From = sdk.OnNode
			}
			p.Want = sdktest.Outcome{Verdict: sdk.Forward}
			placed, leftOut := g.Place(sdktest.Scenario{
				Node:     sdk.Node{Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")}},
				Services: []sdk.Service{{Name: sdk.Name{Protocol: c.protocol}, Cluster: []sdk.Endpoint{{Addr: p.To}}}},
				Packets:  []sdktest.Packet{p},
			})
			if len(leftOut) > 0 {
				t.Fatal(leftOut)
			}
			stage, err := g.Open(t.Context(), nil, placed)
			if err != nil {
				t.Fatal(err)
			}
			defer stage.Close()
			a, err := stage.Send(t.Context(), p)
			if err != nil || a.Endpoint != p.To || a.Client != p.From.Addr {
				t.Errorf("answer %s, %v; want one of %s that saw %s", a, err, p.To, p.From.Addr)
			}
		})
	}
}

// TestKernelPods checks that a pod behind one node reaches a pod behind another, which sees the caller's address.
func TestKernelPods(t *testing.T) {
	g := testbed(t)
	var pods []*Host
	for i, node := range []string{"192.0.2.1", "192.0.2.2"} {
		h, err := g.Host(netip.MustParseAddr(node))
		if err != nil {
			t.Fatal(err)
		}
		pod, err := g.Pod(h, netip.AddrFrom4([4]byte{10, 180, byte(i), 2}))
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, pod)
	}
	at := netip.MustParseAddrPort("10.180.1.2:8080")
	end, err := Answer(t.Context(), pods[1], sdk.TCP, at)
	if err != nil {
		t.Fatal(err)
	}
	defer end.Close()
	conn, err := pods[0].Dial(t.Context(), "tcp4", netip.MustParseAddr("10.180.0.2"), at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, at.String()+" 10.180.0.2:") {
		t.Errorf("the pod answers %q, %v", line, err)
	}
}

// TestKernelVerdicts checks that packets that no rule handles are distinguished from dropped and rejected packets, for
// callers elsewhere and on the node.
func TestKernelVerdicts(t *testing.T) {
	g := testbed(t)
	for _, addr := range []string{"192.0.2.10", "2001:db8::10"} {
		if err := g.Own(netip.MustParseAddr(addr)); err != nil {
			t.Fatal(err)
		}
	}
	for _, chain := range []string{"FORWARD", "OUTPUT"} {
		for _, rule := range []string{"iptables -A CHAIN -d 172.30.0.1 -j DROP", "iptables -A CHAIN -d 172.30.0.2 -j REJECT",
			"ip6tables -A CHAIN -d fd00:172:30::1 -j DROP", "ip6tables -A CHAIN -d fd00:172:30::2 -j REJECT"} {
			words := strings.Fields(strings.Replace(rule, "CHAIN", chain, 1))
			if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
				t.Skipf("needs iptables: %s", out)
			}
			words[1] = "-D"
			t.Cleanup(func() { _ = exec.Command(words[0], words[1:]...).Run() })
		}
	}
	stage, err := g.Open(t.Context(), nil, sdktest.Scenario{})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []sdk.Caller{
		{Addr: netip.MustParseAddr("198.18.0.7")},
		{Addr: netip.MustParseAddr("192.0.2.10"), From: sdk.OnNode},
		{Addr: netip.MustParseAddr("2001:db8::7")},
		{Addr: netip.MustParseAddr("2001:db8::10"), From: sdk.OnNode},
	} {
		for _, protocol := range []sdk.Protocol{sdk.TCP, sdk.UDP} {
			for last, want := range map[string]sdk.Verdict{"1": sdk.Drop, "2": sdk.Reject, "3": sdk.Forward} {
				to := netip.MustParseAddr("172.30.0." + last)
				if from.Addr.Is6() {
					to = netip.MustParseAddr("fd00:172:30::" + last)
				}
				p := sdktest.Packet{From: from, To: netip.AddrPortFrom(to, 80), Protocol: protocol}
				p.Want.Verdict = want
				a, err := stage.Send(t.Context(), p)
				switch {
				case want == sdk.Forward && !unreachable(err):
					t.Errorf("%s > %s %s: %s, %v; want an error, because no rule handles the packet", from.Addr, to, protocol, a, err)
				case want != sdk.Forward && (err != nil || a.Verdict != want):
					t.Errorf("%s > %s %s: %s, %v; want %s", from.Addr, to, protocol, a, err, want)
				}
			}
		}
	}
}

// TestKernelPrivateLedger checks that the ledger of tested dataplanes has no file on the machine's file system.
func TestKernelPrivateLedger(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	l, err := ledger.Open(ledger.Dir)
	if err != nil {
		t.Fatal(err)
	}
	lock, err := l.TryLock("test")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Unlock()
	for _, pid := range []int{os.Getpid(), os.Getppid()} {
		found, err := filepath.Glob(fmt.Sprintf("/proc/%d/root%s/*-test.lock", pid, ledger.Dir))
		if err != nil {
			t.Fatal(err)
		}
		if seen := len(found) > 0; seen != (pid == os.Getpid()) {
			t.Errorf("process %d sees the lock: %v", pid, seen)
		}
	}
}
