// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// A load calls a node in every way: by new connections all the time, and on kept connections every 20 ms.
type load struct {
	*traffic.Load
	t       testing.TB
	excused bool // earlier failures are not the swap's
}

// A caller calls from one address to another.
type caller = traffic.Caller

// caller returns a caller; without a valid address it calls from the node itself.
func (n *node) caller(name string, from netip.Addr, to netip.AddrPort) caller {
	n.Helper()
	if !from.IsValid() {
		return caller{Name: name, To: to, Dial: func(ctx context.Context, network string, to netip.AddrPort) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, to.String())
		}}
	}
	return traffic.Callers(n, n.testbed, to, map[string]netip.Addr{name: from})[0]
}

// serve answers TCP and UDP at a backend with what it receives, until the test ends.
func (n *node) serve(addr netip.Addr) {
	n.Helper()
	at := netip.AddrPortFrom(addr, port)
	traffic.Answer(n, n.testbed, at)
	host, err := n.testbed.Host(addr)
	if err != nil {
		n.Fatal(err)
	}
	packets, err := host.ListenPacket(n.Context(), "udp4", at)
	if err != nil {
		n.Fatal(err)
	}
	context.AfterFunc(n.Context(), func() { _ = packets.Close() })
	go traffic.EchoPackets(packets) // ends with the socket
}

// callers returns callers in a pod, on the node itself, and outside, for the virtual address and the node port.
func (n *node) callers() []caller {
	n.Helper()
	var all []caller
	ways := []netip.AddrPort{netip.AddrPortFrom(vip, port), netip.AddrPortFrom(nodeAddr, nodePort)}
	for name, from := range map[string]netip.Addr{"pod": pod, "client": client, "node": {}} {
		for _, to := range ways {
			c := n.caller(name, from, to)
			c.UDP = true
			all = append(all, c)
		}
	}
	return all
}

// newLoad starts a load of more than 300 new connections a second and 102 kept ones, 6 of which are streams of
// datagrams.
func (n *node) newLoad() *load {
	n.Helper()
	n.waitForAnswers()
	return n.loadOf(n.callers()...)
}

// loadOf starts a load of these callers.
func (n *node) loadOf(callers ...caller) *load {
	l := &load{Load: traffic.Start(traffic.Plan{New: 2, Every: 36 * time.Millisecond, Keep: 16}, callers...), t: n.T}
	n.Cleanup(func() { l.End() })
	return l
}

// kept is a connection on which a caller has been answered.
type kept struct {
	net.Conn
	name string
}

// keep opens a connection of c's.
func (n *node) keep(c caller) *kept {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.Context(), long)
	defer cancel()
	conn, err := c.Dial(ctx, c.Over("tcp"), c.To)
	if err != nil {
		n.Fatal(err)
	}
	k := &kept{conn, fmt.Sprintf("from %s to %s", c.Name, c.To)}
	if err := k.say(); err != nil {
		n.Fatal(k.name, err)
	}
	return k
}

// say calls on the connection, and waits as long as the answer takes.
func (k *kept) say() error {
	_ = k.SetDeadline(time.Now().Add(long))
	return traffic.Say(k)
}

// more waits until that many more calls on new connections were answered.
func (l *load) more(calls int) {
	l.t.Helper()
	l.More(l.t, calls)
}

// done ends the load, and checks that no call has failed.
func (l *load) done(what string) {
	l.t.Helper()
	counts := l.End()
	var failed []string
	for _, f := range counts.Failed {
		if !l.excused {
			failed = append(failed, f.String())
		}
	}
	seconds := counts.Took.Seconds()
	l.t.Logf("%s: %d new connections (%.0f/s) and %d answers on kept ones in %.1f s: %d failed; longest answer %s, on a kept one %s",
		what, counts.New, float64(counts.New)/seconds, counts.Kept, seconds, len(failed), counts.Worst.Round(time.Millisecond), counts.Stall.Round(time.Millisecond))
	slices.Sort(failed)
	for i, text := range failed {
		if i == 10 {
			l.t.Errorf("… and %d more", len(failed)-i)
			break
		}
		l.t.Error(text)
	}
}
