// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"
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

// Misnamed says which ports the EndpointSlices with endpoints have, if a Service asks for another; empty:
// one has it, or there is no endpoint (kubernetes#123954).
func Misnamed(joined []*Slice, port Port, family sdk.Family) string {
	var have []string
	some := false
	for _, s := range joined {
		if s.Family != family || len(s.Endpoints) == 0 {
			continue
		}
		some = true
		for _, p := range s.Ports {
			if p.Name == port.Name && p.Protocol == port.Protocol {
				return ""
			}
			have = append(have, fmt.Sprintf("%q (%s)", p.Name, p.Protocol))
		}
	}
	slices.Sort(have)
	asks := fmt.Sprintf("the Service asks for port %q (%s), and its EndpointSlices have ", port.Name, port.Protocol)
	switch {
	case !some:
		return ""
	case have == nil:
		return asks + "endpoints without ports; if its targetPort is a name, no pod has a port of that name"
	}
	return asks + "only " + strings.Join(slices.Compact(have), ", ") + "; look at the port's name, and at its targetPort if that is a name"
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
