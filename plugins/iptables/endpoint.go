// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"encoding/binary"
	"math"
	"math/bits"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// maxRules is the number of endpoints among which one chain chooses. A longer list is split into parts, so that
// a packet is compared with one part and not with the whole list.
const maxRules = 16

// addList adds the chains that choose one of endpoints: the endpoint that the client used before if the Service
// has affinity, otherwise a random one. The chain begins with rules.
func (r *render) addList(svc sdk.Service, chain string, endpoints []sdk.Endpoint, rules []iptables.Rule) {
	parts := divide(endpoints)
	if len(parts) == 1 {
		rules = append(append(rules, r.affinityRules(svc, endpoints)...), r.chooseRules(svc, endpoints)...)
		r.addListChain(svc, chain, rules)
		return
	}
	for i, part := range parts {
		if svc.Affinity > 0 && len(part) > 0 {
			r.addChain(svc, nat(affinityPartChain(chain, i)), r.affinityRules(svc, part)...)
			rules = append(rules, iptables.Words("-j", affinityPartChain(chain, i)))
		}
	}
	left := len(endpoints)
	for i, part := range parts {
		if len(part) > 0 {
			r.addChain(svc, nat(partChain(chain, i)), r.chooseRules(svc, part)...)
			rules = append(rules, iptables.Words(probability(len(part), left), "-j", partChain(chain, i)))
			left -= len(part)
		}
	}
	r.addListChain(svc, chain, rules)
}

// addListChain adds the chain of an endpoint list. Its first rule always has the Service's name as a comment,
// because adoption reads the name there.
func (r *render) addListChain(svc sdk.Service, chain string, rules []iptables.Rule) {
	addNames(svc, rules[:min(1, len(rules))])
	r.addChain(svc, nat(chain), rules...)
}

// divide splits a long list into parts. There are about as many parts as endpoints in a part, which keeps the
// path to an endpoint short. The part follows from a hash of the endpoint's address, and a growing list splits
// one part at a time (linear hashing). So an added or removed endpoint changes its own part, sometimes one or
// two more, and the chains of the other parts stay as they are.
func divide(endpoints []sdk.Endpoint) [][]sdk.Endpoint {
	if len(endpoints) <= maxRules {
		return [][]sdk.Endpoint{endpoints}
	}
	n := int(math.Ceil(math.Sqrt(float64(len(endpoints)))))
	parts := make([][]sdk.Endpoint, n)
	for _, ep := range endpoints {
		i := partOf(ep.Addr, n)
		parts[i] = append(parts[i], ep)
	}
	return parts
}

// partOf returns the part, of n, to which addr belongs. If n grows by one, only addresses of the part that is
// split move.
func partOf(addr netip.AddrPort, n int) int {
	all := 1 << bits.Len(uint(n-1)) // the next power of two
	i := int(hashAddr(addr) & uint64(all-1))
	if i >= n {
		i &= all/2 - 1
	}
	return i
}

// hashAddr returns a hash of an address whose low bits are evenly distributed even for consecutive addresses.
// It uses the finalizer of splitmix64.
func hashAddr(addr netip.AddrPort) uint64 {
	b := addr.Addr().As16()
	x := binary.BigEndian.Uint64(b[:8])*0x9e3779b97f4a7c15 ^ binary.BigEndian.Uint64(b[8:]) ^ uint64(addr.Port())<<48
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// affinityRules returns the rules that send a client back to the endpoint that it used before.
func (r *render) affinityRules(svc sdk.Service, endpoints []sdk.Endpoint) []iptables.Rule {
	if svc.Affinity <= 0 {
		return nil
	}
	seconds := min(max(1, int64(svc.Affinity/time.Second)), maxRecentSeconds)
	var rules []iptables.Rule
	for _, ep := range endpoints {
		sep := endpointChain(svc.Name, ep.Addr)
		rules = append(rules, iptables.Words(r.endpointComment(svc, ep), "-m recent --rcheck --seconds", seconds, "--reap", recentList(svc, sep), "-j", sep))
	}
	return rules
}

// maxRecentSeconds is the longest time for which xt_recent can remember a client: it counts jiffies, of at
// least a millisecond, in 32 bits.
const maxRecentSeconds = (1<<32 - 1) / 1000

// chooseRules returns rules that take each endpoint with the same probability: the first with 1/n, the second
// with 1/(n-1) of the remaining packets, and so on; the last rule matches always.
func (r *render) chooseRules(svc sdk.Service, endpoints []sdk.Endpoint) []iptables.Rule {
	var rules []iptables.Rule
	for i, ep := range endpoints {
		chance := probability(1, len(endpoints)-i)
		if r.own[ep.Addr] {
			rules = append(rules, iptables.Words(r.endpointComment(svc, ep), chance, "-j", endpointChain(svc.Name, ep.Addr)))
			continue
		}
		rules = append(rules, iptables.Words(protocolMatch(svc), r.endpointComment(svc, ep), chance, "-j DNAT --to-destination", ep.Addr))
	}
	return rules
}

// probability returns the match that takes part of whole cases. It is empty if part equals whole.
func probability(part, whole int) string {
	if part == whole {
		return ""
	}
	return "-m statistic --mode random --probability " + iptables.Share(part, whole)
}

// addEndpoint adds the KUBE-SEP chain of an endpoint that needs more than a DNAT: it may send packets to its
// own Service (hairpin), or the Service has affinity.
func (r *render) addEndpoint(svc sdk.Service, ep sdk.Endpoint) {
	id := nat(endpointChain(svc.Name, ep.Addr))
	r.own[ep.Addr] = true
	var rules []iptables.Rule
	if svc.MayCallItself(ep) { // masquerade hairpin packets, so that replies pass this node's NAT
		rules = append(rules, iptables.Words("-s", ep.Addr.Addr(), "-j MARK --set-xmark", iptables.OneBit(r.node.MasqueradeBit)))
	}
	var remember iptables.Rule
	if svc.Affinity > 0 {
		remember = iptables.Words("-m recent --set", recentList(svc, id.Chain))
	}
	rules = append(rules, iptables.Words(protocolMatch(svc), remember, "-j DNAT --to-destination", ep.Addr))
	r.addChain(svc, id, rules...)
}

// recentList returns the options that name the xt_recent list of an endpoint's clients.
func recentList(svc sdk.Service, name string) iptables.Rule {
	mask := "255.255.255.255"
	if svc.Name.Family == sdk.IPv6 {
		mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return iptables.Words("--name", name, "--mask", mask, "--rsource")
}
