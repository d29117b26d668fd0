// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// An Explanation describes an endpoint of one Service port in one family, and why this node
// does or does not use it.
type Explanation struct {
	Addr netip.AddrPort
	Place

	Ready, Serving, Terminating bool // its conditions

	NotCluster string // why it is not used for the Cluster policy; empty if it is
	NotLocal   string // why it is not used for the Local policy; empty if it is
}

// Explain returns the reasons for the result of Choose with the same arguments, for each
// endpoint in order of address.
func Explain(joined []*Slice, port Port, family sdk.Family, thisNode ThisNode) []Explanation {
	all := collectCandidates(joined, port, family, thisNode.Node)
	near := chooseHints(all, thisNode)
	chosen := Choose(joined, port, family, thisNode)
	explained := make([]Explanation, len(all))
	for i, c := range all {
		e := Explanation{Addr: c.addr, Place: c.place, Ready: c.state&Ready != 0, Serving: c.state&Serving != 0, Terminating: c.state&Terminating != 0}
		if !contains(chosen.Cluster, c.addr) {
			e.NotCluster = c.whyUnused()
			if e.NotCluster == "" {
				e.NotCluster = near.whyNotHinted(c)
			}
		}
		if !contains(chosen.Local, c.addr) {
			e.NotLocal = c.whyNotLocal()
			if e.NotLocal == "" {
				e.NotLocal = c.whyUnused()
			}
		}
		explained[i] = e
	}
	return explained
}

// Misnamed explains that no EndpointSlice with endpoints has the Service's port, and lists the
// ports that they have. It returns "" if one has the port, or if there are no endpoints
// (kubernetes#123954).
func Misnamed(joined []*Slice, port Port, family sdk.Family) string {
	have := make(map[string]bool)
	for _, s := range joined {
		if s.Family != family || len(s.Endpoints) == 0 {
			continue
		}
		if len(s.Ports) == 0 {
			have["none"] = true // if the targetPort is a name, no pod has a port of that name
		}
		for _, p := range s.Ports {
			if p.Name == port.Name && p.Protocol == port.Protocol {
				return ""
			}
			have[fmt.Sprintf("%q (%s)", p.Name, p.Protocol)] = true
		}
	}
	if len(have) == 0 {
		return ""
	}
	return fmt.Sprintf("the Service asks for port %q (%s), and its EndpointSlices have only %s; look at the port's name and targetPort",
		port.Name, port.Protocol, strings.Join(slices.Sorted(maps.Keys(have)), ", "))
}

// whyUnused returns the reason in the conditions of c for not using it, or "" if there is none.
func (c candidate) whyUnused() string {
	switch {
	case c.state&Ready != 0:
		return ""
	case isServingTerminating(c):
		return "it terminates, and others are ready"
	case c.state&Terminating != 0:
		return "it terminates, and does not serve any more"
	}
	return "it is not ready"
}

// whyNotLocal returns the reason why c is not an endpoint on this node, or "" if it is.
func (c candidate) whyNotLocal() string {
	switch {
	case c.local:
		return ""
	case c.place.Node == "":
		return "its node is not given"
	}
	return "it is on node " + c.place.Node
}

// whyNotHinted returns text that says for which nodes or zones c is hinted. Call it only for ready endpoints that are
// not hinted for this node.
func (h hints) whyNotHinted(c candidate) string {
	return "it is hinted for " + h.kind + " " + strings.ReplaceAll(h.of(c.place), ",", ", ") + ", and this " + h.kind + " is " + h.self
}
