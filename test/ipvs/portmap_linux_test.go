// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/pointsman/pointsman/test/portmap"
	"github.com/pointsman/pointsman/test/traffic"
)

// TestKernelIPVSPortmap: a pod's hostPort is mapped by the real portmap plugin, which needs the
// chain KUBE-MARK-MASQ, before, during and after each swap from ipvs to the others and back;
// and a port that was mapped answers, also where its caller must be masqueraded.
func TestKernelIPVSPortmap(t *testing.T) {
	if why := portmap.Missing(); why != "" {
		t.Skip(why)
	}
	n := newNode(t)
	tools := t.TempDir()
	if err := portmap.Tools(tools, "legacy"); err != nil {
		t.Fatal(err)
	}
	n.shows("dual-stack")
	pod := netip.MustParseAddrPort("10.180.0.77:8080")
	n.echoes(pod)
	n.start()
	mapping := func(container string, port uint16) portmap.Mapping {
		return portmap.Mapping{Container: container, HostPort: port, Pod: pod, Tools: tools}
	}
	byLoopback := traffic.Caller{Name: "the node", To: netip.MustParseAddrPort("127.0.0.1:31000"), Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, to.String())
	}}
	lasts := mapping("lasts", 31000)
	if err := lasts.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	answers := func(when string) {
		t.Helper()
		n.until("the mapped port answers "+when, func() error { return byLoopback.Try(n.Context()) })
	}
	answers("in ipvs")
	if err := lasts.Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"userspace", "ipvs"} { // with no port mapped, that would keep the chain
		n.change(mode)
		n.until("only "+mode+" is there", func() error { return n.mode(mode, true) })
		alone := mapping("alone-in-"+mode, 31001)
		if err := errors.Join(alone.Add(t.Context()), alone.Delete(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if err := lasts.Add(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"iptables", "ipvs", "userspace", "ipvs"} {
		finish := portmap.During(t.Context(), func(i int) portmap.Mapping { return mapping(fmt.Sprintf("during-%d", i), 31002) }, []traffic.Caller{byLoopback})
		n.change(mode)
		n.until("only "+mode+" is there", func() error { return n.mode(mode, true) })
		done, failed := finish()
		t.Logf("to %s: %v", mode, done)
		for _, err := range failed {
			if late := errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded); !late { // the guest starves
				t.Errorf("to %s, of %v: %v", mode, done, err)
			}
		}
		answers("in " + mode)
	}
	if err := lasts.Delete(t.Context()); err != nil {
		t.Error(err)
	}
}

// echoes answers TCP at addr with what was said, until the test ends.
func (n *node) echoes(addr netip.AddrPort) {
	n.Helper()
	host, err := n.testbed.Host(addr.Addr())
	if err != nil {
		n.Fatal(err)
	}
	l, err := host.Listen(n.Context(), "tcp4", addr)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = l.Close() })
	go traffic.Echo(l) // ends with the listener
}
