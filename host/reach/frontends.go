// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// PortFrontends holds the frontends of one port of a Service in one family.
type PortFrontends struct {
	Port      Port
	Family    sdk.Family
	Frontends []sdk.Frontend // in canonical order, each address once
}

// Frontends returns the frontends of s on this node, the requested ones that are not served
// (problems), the served ones that may be a mistake (warnings), and the ones that are left out
// on purpose (notes). A Service exists in the families in which it has a cluster IP.
func Frontends(s *Service, thisNode ThisNode) (all []PortFrontends, problems, warnings []Problem, notes []string) {
	f := addressFilter{thisNode: thisNode, problems: slices.Clone(s.Problems)}
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		targets := f.targets(s, family)
		for i := 0; targets != nil && i < len(s.Ports); i++ {
			all = append(all, PortFrontends{s.Ports[i], family, frontends(s, s.Ports[i], targets)})
		}
	}
	return all, f.problems, f.warnings, f.notes
}

// A target is an address of a Service in one family, at which it has a frontend for each of its
// ports; of the kind NodePort, for each of its node ports.
type target struct {
	kind    sdk.Kind
	addr    netip.Addr
	sources []netip.Prefix
}

// An addressFilter decides which addresses are served, and collects the reasons against the
// others.
type addressFilter struct {
	thisNode ThisNode
	problems []Problem
	warnings []Problem // about addresses that are served
	notes    []string  // about addresses that are left out on purpose
}

// skipOtherNode reports whether addr is left out because it belongs to another Node, and adds a
// note about it.
func (f *addressFilter) skipOtherNode(what string, addr netip.Addr) bool {
	node, is := f.thisNode.Others[addr]
	if is = is && !slices.Contains(f.thisNode.Addrs, addr); is {
		f.notes = append(f.notes, fmt.Sprintf("%s %s is an address of Node %s, which gets what is sent there", what, addr, node))
	}
	return is
}

// accept returns true if why, the reason against addr, is empty. Otherwise it adds a problem.
func (f *addressFilter) accept(reason, what string, addr netip.Addr, why string) bool {
	if why != "" {
		f.problems = append(f.problems, Problem{reason, fmt.Sprintf("%s %s %s; it is not served", what, addr, why)})
	}
	return why == ""
}

// targets returns the addresses of s in one family, the more specific kinds first: a load balancer
// IP, which has source ranges, before an external IP. It returns nil without a cluster IP.
func (f *addressFilter) targets(s *Service, family sdk.Family) []target {
	clusterIP, outside := f.clusterIP(s, family), ""
	list := []target{{sdk.ClusterIP, clusterIP, nil}}
	if !clusterIP.IsValid() {
		outside = fmt.Sprintf("is %s, and the Service has no cluster IP in that family", family)
	}
	for _, addr := range filterFamily(s.VIPs, family) {
		if !f.accept(IncorrectIPVersion, "load balancer IP", addr, outside) ||
			!f.accept(InvalidAddress, "load balancer IP", addr, unusable(addr, f.thisNode.Loopback)) ||
			s.Unreadable || f.skipOtherNode("load balancer IP", addr) {
			continue
		}
		sources := f.thisNode.sources(s.Sources, addr)
		list = append(list, target{sdk.LoadBalancer, addr, sources})
		if len(sources) > 0 && !slices.Contains(f.thisNode.Addrs, addr) {
			// If the node has this address, its node port would bypass the source ranges
			// (kubernetes#111863).
			list = append(list, target{sdk.NodePort, addr, sources})
		}
		if len(s.Sources) > 0 && !slices.ContainsFunc(s.Sources, func(p netip.Prefix) bool { return sdk.FamilyOf(p.Addr()) == family }) {
			f.problems = append(f.problems, Problem{IncorrectIPVersion, fmt.Sprintf("load balancer IP %s is %s, and no source range is; all callers are dropped", addr, family)})
		}
	}
	for _, addr := range filterFamily(s.ExternalIPs, family) {
		if f.accept(IncorrectIPVersion, "external IP", addr, outside) &&
			f.accept(ExternalIPRefused, "external IP", addr, f.thisNode.refusesExternal(addr)) && !f.skipOtherNode("external IP", addr) {
			f.warnNodeAddr(addr)
			list = append(list, target{sdk.ExternalIP, addr, nil})
		}
	}
	if outside != "" {
		return nil
	}
	return append(list, target{sdk.NodePort, unspecified(clusterIP), nil})
}

// warnNodeAddr adds a warning if the served external IP addr is an address of this node and the
// operator has not chosen to serve those.
func (f *addressFilter) warnNodeAddr(addr netip.Addr) {
	if f.thisNode.NodeAddresses == WarnOfNodeAddresses && len(f.thisNode.ExternalIPs) == 0 && slices.Contains(f.thisNode.Addrs, addr) {
		f.warnings = append(f.warnings, Problem{ExternalIPOfNode, fmt.Sprintf("external IP %s is an address of this node; it is served, as by kube-proxy; "+
			"set externalIPs.nodeAddresses (POINTSMAN_EXTERNALIPS_NODEADDRESSES) to refuse, or to serve to permit it without a warning", addr)})
	}
}

func (f *addressFilter) clusterIP(s *Service, family sdk.Family) netip.Addr {
	for _, addr := range filterFamily(s.ClusterIPs, family) {
		if f.accept(InvalidAddress, "cluster IP", addr, unusable(addr, f.thisNode.Loopback)) {
			return addr
		}
	}
	return netip.Addr{}
}

// filterFamily returns the addresses of one family.
func filterFamily(addrs []netip.Addr, family sdk.Family) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return sdk.FamilyOf(a) != family })
}

// refusesExternal returns the reason why a Service may not have addr as external IP, or "" if
// it may. With a wrong address a user could intercept traffic of this node or of the cluster
// (CVE-2020-8554).
func (h ThisNode) refusesExternal(addr netip.Addr) string {
	why := unusableRemote(addr, h.Loopback)
	switch {
	case why != "":
		return why
	case len(h.ExternalIPs) > 0 && !within(addr, h.ExternalIPs):
		return "is in none of the ranges that externalIPs.allow names"
	case len(h.ExternalIPs) > 0:
		return ""
	case h.NodeAddresses == RefuseNodeAddresses && slices.Contains(h.Addrs, addr):
		return "is this node's own; name it in externalIPs.allow, or set externalIPs.nodeAddresses, to permit it"
	case within(addr, h.Reserved):
		return "is in a range of pods or cluster IPs"
	}
	return ""
}

// sources returns the ranges of vip's family. If an address of this node is in them, the result
// includes the VIP itself: when the node connects to the VIP, the VIP is also its source
// address. If all ranges are of the other family, the VIP is the only range, because an empty
// list would admit every caller.
func (h ThisNode) sources(ranges []netip.Prefix, vip netip.Addr) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range ranges {
		if sdk.FamilyOf(p.Addr()) == sdk.FamilyOf(vip) {
			own = append(own, p)
		}
	}
	if len(ranges) > 0 && own == nil || slices.ContainsFunc(h.Addrs, func(a netip.Addr) bool { return within(a, own) }) {
		own = append(own, netip.PrefixFrom(vip, vip.BitLen()))
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	return slices.Compact(own)
}

// frontends returns the frontends of port p. The first target with an address wins.
func frontends(s *Service, p Port, targets []target) []sdk.Frontend {
	list := make([]sdk.Frontend, 0, len(targets))
	for _, t := range targets {
		f := sdk.Frontend{Kind: t.kind, Addr: netip.AddrPortFrom(t.addr, p.Number), Policy: s.External, Sources: t.sources}
		switch t.kind {
		case sdk.ClusterIP:
			f.Policy = s.Internal
		case sdk.NodePort:
			f.Addr = netip.AddrPortFrom(t.addr, p.NodePort)
		}
		if f.Addr.Port() != 0 && !slices.ContainsFunc(list, func(g sdk.Frontend) bool { return f.Addr == g.Addr }) {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, sdk.Frontend.Compare)
	return slices.Clone(list) // it is kept, without the capacity that it did not need
}

// unspecified returns the unspecified address of addr's family, which stands for all addresses
// that accept node ports.
func unspecified(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
