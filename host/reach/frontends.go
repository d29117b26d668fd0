// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// PortFrontends is one port of a Service in one family, and the frontends by which it is reached.
type PortFrontends struct {
	Port      Port
	Family    sdk.Family
	Frontends []sdk.Frontend // in canonical order, each address once
}

// Frontends returns the ways in to s on this node, what of s is no way in though it was asked
// for, what is one and may not be meant so, and what is left out on purpose. A Service lives in the families
// in which it has a cluster IP.
func Frontends(s *Service, here Here) (all []PortFrontends, problems, warnings []Problem, notes []string) {
	f := addressFilter{here: here, problems: slices.Clone(s.Problems)}
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		w := f.addresses(s, family)
		if !w.clusterIP.IsValid() {
			continue
		}
		for _, p := range s.Ports {
			all = append(all, PortFrontends{p, family, w.frontends(s, p)})
		}
	}
	return all, f.problems, f.warnings, f.notes
}

// addresses are those of a Service in one family. All its ports have them.
type addresses struct {
	clusterIP   netip.Addr
	externalIPs []netip.Addr
	vips        []vip
}

// A vip is a load balancer's address, and the callers that may use it.
type vip struct {
	addr    netip.Addr
	sources []netip.Prefix
	ofNode  bool // it is one of the Node object's addresses
}

// An addressFilter decides which addresses are served, and keeps why others are not.
type addressFilter struct {
	here     Here
	problems []Problem
	warnings []Problem // of what is served
	notes    []string  // why addresses are left out
}

// leaves reports whether addr is left out because it is another Node's, and notes it.
func (f *addressFilter) leaves(what string, addr netip.Addr) bool {
	node, is := f.here.Others[addr]
	if is = is && !slices.Contains(f.here.Addrs, addr); is {
		f.notes = append(f.notes, fmt.Sprintf("%s %s is an address of Node %s, which gets what is sent there", what, addr, node))
	}
	return is
}

// accept reports whether there is no reason, why, against addr.
func (f *addressFilter) accept(reason, what string, addr netip.Addr, why string) bool {
	if why != "" {
		f.problems = append(f.problems, Problem{reason, fmt.Sprintf("%s %s %s; it is not served", what, addr, why)})
	}
	return why == ""
}

func (f *addressFilter) addresses(s *Service, family sdk.Family) addresses {
	w := addresses{clusterIP: f.clusterIP(s, family)}
	outside := ""
	if !w.clusterIP.IsValid() {
		outside = fmt.Sprintf("is %s, and the Service has no cluster IP in that family", family)
	}
	for _, addr := range of(s.ExternalIPs, family) {
		if f.accept(IncorrectIPVersion, "external IP", addr, outside) &&
			f.accept(ExternalIPRefused, "external IP", addr, f.here.refusesExternal(addr)) && !f.leaves("external IP", addr) {
			f.warnOfNode(addr)
			w.externalIPs = append(w.externalIPs, addr)
		}
	}
	for _, addr := range of(s.VIPs, family) {
		if f.accept(IncorrectIPVersion, "load balancer IP", addr, outside) &&
			f.accept(InvalidAddress, "load balancer IP", addr, unusable(addr, f.here.Loopback)) &&
			!s.Unreadable && !f.leaves("load balancer IP", addr) {
			w.vips = append(w.vips, vip{addr, f.here.sources(s.Sources, addr), slices.Contains(f.here.Addrs, addr)})
			if len(s.Sources) > 0 && !slices.ContainsFunc(s.Sources, func(p netip.Prefix) bool { return sdk.FamilyOf(p.Addr()) == family }) {
				f.problems = append(f.problems, Problem{IncorrectIPVersion, fmt.Sprintf("load balancer IP %s is %s, and no source range is; no caller is let in", addr, family)})
			}
		}
	}
	return w
}

// warnOfNode says so if addr, an external IP that is served, is the node's own and no operator
// has chosen that.
func (f *addressFilter) warnOfNode(addr netip.Addr) {
	if f.here.NodeAddresses == WarnOfNodeAddresses && len(f.here.ExternalIPs) == 0 && slices.Contains(f.here.Addrs, addr) {
		f.warnings = append(f.warnings, Problem{ExternalIPOfNode, fmt.Sprintf("external IP %s is this node's own, and is not refused, as kube-proxy does not; "+
			"set externalIPs.nodeAddresses (POINTSMAN_EXTERNALIPS_NODEADDRESSES) to refuse, or to serve to permit it without a warning", addr)})
	}
}

func (f *addressFilter) clusterIP(s *Service, family sdk.Family) netip.Addr {
	for _, addr := range of(s.ClusterIPs, family) {
		if f.accept(InvalidAddress, "cluster IP", addr, unusable(addr, f.here.Loopback)) {
			return addr
		}
	}
	return netip.Addr{}
}

// of returns the addresses of one family.
func of(addrs []netip.Addr, family sdk.Family) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return sdk.FamilyOf(a) != family })
}

// refusesExternal says why a Service may not take addr as an external IP: it
// would catch what this node, or the cluster, sends there (CVE-2020-8554).
func (h Here) refusesExternal(addr netip.Addr) string {
	why := unfit(addr, h.Loopback)
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

// sources returns those ranges that are of vip's family. A node that may call may
// call itself by the VIP, which is then its source address too. Where all ranges are of
// the other family, the VIP itself is the only range: an empty list would admit every caller.
func (h Here) sources(ranges []netip.Prefix, vip netip.Addr) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range ranges {
		if sdk.FamilyOf(p.Addr()) == sdk.FamilyOf(vip) {
			own = append(own, p)
		}
	}
	if len(ranges) > 0 && own == nil || slices.ContainsFunc(h.Addrs, func(a netip.Addr) bool { return within(a, own) }) {
		own = append(own, netip.PrefixFrom(vip, vip.BitLen()))
	}
	slices.SortFunc(own, sdk.ComparePrefix)
	return slices.Compact(own)
}

// frontends of port p. Where one address is named twice the kind that says more
// about it wins: the load balancer's with its ranges before the external IP.
func (w addresses) frontends(s *Service, p Port) []sdk.Frontend {
	list := make([]sdk.Frontend, 0, 1+len(w.vips)+len(w.externalIPs)+min(1, int(p.NodePort)))
	add := func(kind sdk.Kind, addr netip.Addr, number uint16, policy sdk.Policy, sources []netip.Prefix) {
		at := netip.AddrPortFrom(addr, number)
		if slices.ContainsFunc(list, func(f sdk.Frontend) bool { return f.Addr == at }) {
			return
		}
		list = append(list, sdk.Frontend{Kind: kind, Addr: at, Policy: policy, Sources: sources})
	}
	add(sdk.ClusterIP, w.clusterIP, p.Number, s.Internal, nil)
	for _, v := range w.vips {
		add(sdk.LoadBalancer, v.addr, p.Number, s.External, v.sources)
		if p.NodePort > 0 && len(v.sources) > 0 && !v.ofNode {
			// The node may have the address: then its node port would be a way round the ranges (kubernetes#111863).
			add(sdk.NodePort, v.addr, p.NodePort, s.External, v.sources)
		}
	}
	for _, addr := range w.externalIPs {
		add(sdk.ExternalIP, addr, p.Number, s.External, nil)
	}
	if p.NodePort > 0 {
		add(sdk.NodePort, every(w.clusterIP), p.NodePort, s.External, nil)
	}
	slices.SortFunc(list, sdk.Frontend.Compare)
	return list
}

// every returns the unspecified address of addr's family: all that take node ports.
func every(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
