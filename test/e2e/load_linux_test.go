// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// A load has one load for each land, in order.
type load []*traffic.Load

// callGap is the pause between two calls of a load: closed connections keep their ports for a minute, and there are
// 28,000 of them.
const callGap = 10 * time.Millisecond

// startLoad calls to from p, one call after the other, until result. Calls before any endpoint answered have left flows
// that lead nowhere, which a reused port would follow: they are deleted first.
func (w *world) startLoad(p *place, to netip.AddrPort) load {
	w.Helper()
	for _, n := range w.nodes {
		w.waitUntilServed(n)
		for _, m := range n.machines {
			w.run(m, "conntrack", "-F")
		}
	}
	return w.startLoadNow(p, to)
}

// startLoadNow calls to from p, one call after the other, until result.
func (w *world) startLoadNow(p *place, to netip.AddrPort) load {
	w.Helper()
	var all load
	for i := range w.lands {
		c := traffic.From(p.hosts[i], "a caller", p.addrIn(to.Addr()), to)
		c.Ask = func(conn net.Conn) error { _, err := ask(conn, traffic.Timeout); return err }
		l := traffic.Start(traffic.Plan{New: 1, Every: callGap}, c)
		w.Cleanup(func() { l.End() })
		all = append(all, l)
	}
	return all
}

// result ends the load, and checks that no call has failed.
func (w *world) result(all load) {
	w.Helper()
	for i, l := range all {
		l.Done(w, w.lands[i].label)
	}
}
