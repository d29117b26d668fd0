// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"net/netip"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// An Explanation is an endpoint of one Service port in one family, what its EndpointSlice
// says of it, and why this node uses it or not.
type Explanation struct {
	Addr netip.AddrPort
	Place

	Ready, Serving, Terminating bool // its conditions

	NotCluster string // why it is not among the endpoints for the Cluster policy; empty: it is
	NotLocal   string // likewise for the Local policy
}

// Explain gives the reasons for what Choose chooses of the same, for each endpoint that
// there is, in order of address.
func Explain(joined []*Slice, port Port, family sdk.Family, here Here) []Explanation {
	all := gather(joined, port, family, here.Node)
	near := topology(all, here)
	chosen := Choose(joined, port, family, here)
	explained := make([]Explanation, len(all))
	for i, c := range all {
		e := Explanation{Addr: c.addr, Place: c.place, Ready: c.state&Ready != 0, Serving: c.state&Serving != 0, Terminating: c.state&Terminating != 0}
		if !lists(chosen.Cluster, c.addr) {
			e.NotCluster = c.unused()
			if e.NotCluster == "" {
				e.NotCluster = near.why(c)
			}
		}
		if !lists(chosen.Local, c.addr) {
			e.NotLocal = c.elsewhere()
			if e.NotLocal == "" {
				e.NotLocal = c.unused()
			}
		}
		explained[i] = e
	}
	return explained
}

// unused says why a list does not have c that could, by its conditions alone; empty: they are
// no reason.
func (c candidate) unused() string {
	switch {
	case c.state&Ready != 0:
		return ""
	case terminating(c):
		return "it terminates, and others are ready"
	case c.state&Terminating != 0:
		return "it terminates, and does not serve any more"
	}
	return "it is not ready"
}

// elsewhere says why c is no endpoint of this node; empty: it is one.
func (c candidate) elsewhere() string {
	switch {
	case c.local:
		return ""
	case c.place.Node == "":
		return "its node is not given"
	}
	return "it is on node " + c.place.Node
}

// why says for whom a ready endpoint is hinted, which is not us.
func (h hints) why(c candidate) string {
	return "it is hinted for " + h.kind + " " + strings.ReplaceAll(h.of(c.place), ",", ", ") + ", and this " + h.kind + " is " + h.me
}
