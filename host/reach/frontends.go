// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// PortFrontends is one port of a Service in one family, and the ways in to it.
type PortFrontends struct {
	Port      Port
	Family    sdk.Family
	Frontends []sdk.Frontend // in canonical order, each address once
}

// Frontends are the ways in to s on this node, and what of s is no way in though
// it was asked for. A Service lives in the families in which it has a ClusterIP.
func Frontends(s *Service, here Here) ([]PortFrontends, []Problem) {
	var all []PortFrontends
	problems := slices.Clone(s.Problems)
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		w, found := ways(s, family, here)
		problems = append(problems, found...)
		if !w.clusterIP.IsValid() {
			continue
		}
		for _, p := range s.Ports {
			all = append(all, PortFrontends{p, family, w.frontends(s, p)})
		}
	}
	return all, problems
}

// The ways into a Service in one family are the same for all its ports.
type way struct {
	clusterIP   netip.Addr
	externalIPs []netip.Addr
	vips        []netip.Addr
	sources     [][]netip.Prefix // for each VIP
}

func ways(s *Service, family sdk.Family, here Here) (way, []Problem) {
	var w way
	var problems []Problem
	refuse := func(reason, what string, addr netip.Addr, why string) {
		problems = append(problems, Problem{reason, fmt.Sprintf("%s %s %s; it is not served", what, addr, why)})
	}
	for _, addr := range s.ClusterIPs {
		if familyOf(addr) != family || w.clusterIP.IsValid() {
			continue
		}
		if why := unusable(addr, here.Loopback); why != "" {
			refuse(InvalidAddress, "cluster IP", addr, why)
			continue
		}
		w.clusterIP = addr
	}
	outside := fmt.Sprintf("is %s, and the Service has no cluster IP in that family", family)
	for _, addr := range s.ExternalIPs {
		if familyOf(addr) != family {
			continue
		}
		if !w.clusterIP.IsValid() {
			refuse(IncorrectIPVersion, "external IP", addr, outside)
		} else if why := here.refusesExternal(addr); why != "" {
			refuse(ExternalIPRefused, "external IP", addr, why)
		} else {
			w.externalIPs = append(w.externalIPs, addr)
		}
	}
	for _, addr := range s.VIPs {
		if familyOf(addr) != family {
			continue
		}
		if !w.clusterIP.IsValid() {
			refuse(IncorrectIPVersion, "load balancer IP", addr, outside)
		} else if why := unusable(addr, here.Loopback); why != "" {
			refuse(InvalidAddress, "load balancer IP", addr, why)
		} else if !s.Unreadable {
			w.vips = append(w.vips, addr)
			w.sources = append(w.sources, here.sources(s.Sources, addr))
		}
	}
	return w, problems
}

// familyOf counts an IPv4 address written as IPv6 with IPv6, where it is refused.
func familyOf(addr netip.Addr) sdk.Family { return sdk.FamilyOf(addr) }

// refusesExternal says why a Service may not take addr as an external IP: it
// would catch what this node, or the cluster, sends there (CVE-2020-8554).
func (h Here) refusesExternal(addr netip.Addr) string {
	if why := unusable(addr, h.Loopback); why != "" {
		return why
	}
	switch {
	case len(h.ExternalIPs) > 0 && !within(addr, h.ExternalIPs):
		return "is in none of the ranges that externalIPs.allow names"
	case len(h.ExternalIPs) > 0:
		return ""
	case slices.Contains(h.Addrs, addr):
		return "is this node's own; name it in externalIPs.allow to permit it"
	case within(addr, h.Reserved):
		return "is in a range of pods or cluster IPs"
	}
	return ""
}

// sources are those ranges that are of vip's family. A node that may call may
// call itself by the VIP, which is then its source address too.
func (h Here) sources(ranges []netip.Prefix, vip netip.Addr) []netip.Prefix {
	var own []netip.Prefix
	for _, p := range ranges {
		if sdk.FamilyOf(p.Addr()) == sdk.FamilyOf(vip) {
			own = append(own, p)
		}
	}
	if slices.ContainsFunc(h.Addrs, func(a netip.Addr) bool { return within(a, own) }) {
		own = append(own, netip.PrefixFrom(vip, vip.BitLen()))
	}
	slices.SortFunc(own, sdk.ComparePrefix)
	return slices.Compact(own)
}

// frontends of port p. Where one address is named twice the kind that says more
// about it wins: the load balancer's with its ranges before the external IP.
func (w way) frontends(s *Service, p Port) []sdk.Frontend {
	list := make([]sdk.Frontend, 0, 1+len(w.vips)+len(w.externalIPs)+1)
	add := func(kind sdk.Kind, addr netip.Addr, number uint16, policy sdk.Policy, sources []netip.Prefix) {
		at := netip.AddrPortFrom(addr, number)
		if slices.ContainsFunc(list, func(f sdk.Frontend) bool { return f.Addr == at }) {
			return
		}
		list = append(list, sdk.Frontend{Kind: kind, Addr: at, Policy: policy, Sources: sources})
	}
	add(sdk.ClusterIP, w.clusterIP, p.Number, s.Internal, nil)
	for i, vip := range w.vips {
		add(sdk.LoadBalancer, vip, p.Number, s.External, w.sources[i])
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

// every is the unspecified address of addr's family: all that take node ports.
func every(addr netip.Addr) netip.Addr {
	if addr.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}
