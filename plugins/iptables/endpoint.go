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

// widest is how many endpoints one chain chooses among. A longer list is divided
// into parts first, so that no packet is held against all of it.
const widest = 16

// spread chooses one of endpoints: the one that the caller had before if the
// Service is sticky, else each with the same chance.
func (r *render) spread(svc sdk.Service, chain string, endpoints []sdk.Endpoint, rules []iptables.Rule) {
	parts := divide(endpoints)
	if len(parts) == 1 {
		rules = append(append(rules, r.sticky(svc, endpoints)...), r.choose(svc, endpoints)...)
		r.list(svc, chain, rules)
		return
	}
	for i, part := range parts {
		if svc.Affinity > 0 && len(part) > 0 {
			r.chain(svc, nat(stickyPart(chain, i)), r.sticky(svc, part)...)
			rules = append(rules, iptables.Words("-j", stickyPart(chain, i)))
		}
	}
	left := len(endpoints)
	for i, part := range parts {
		if len(part) > 0 {
			r.chain(svc, nat(partChain(chain, i)), r.choose(svc, part)...)
			rules = append(rules, iptables.Words(oneIn(len(part), left), "-j", partChain(chain, i)))
			left -= len(part)
		}
	}
	r.list(svc, chain, rules)
}

// list adds the chain of a list of endpoints. Its first rule has the Service's name in any
// case: by that it is read back.
func (r *render) list(svc sdk.Service, chain string, rules []iptables.Rule) {
	named(svc, rules[:min(1, len(rules))])
	r.chain(svc, nat(chain), rules...)
}

// divide cuts a long list into parts: about as many as each is long, so that the way
// to an endpoint is short. An endpoint's part follows from a hash of its address, and as
// the list grows one part after the other is split (linear hashing). So an endpoint that
// comes or goes changes its own part, seldom one or two more, and all others stay as they
// are written.
func divide(endpoints []sdk.Endpoint) [][]sdk.Endpoint {
	if len(endpoints) <= widest {
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

// partOf is the part, of n, that addr belongs to. With one part more only those change
// that come from the part which that one is split off.
func partOf(addr netip.AddrPort, n int) int {
	all := 1 << bits.Len(uint(n-1)) // the next power of two
	i := int(scattered(addr) & uint64(all-1))
	if i >= n {
		i &= all/2 - 1
	}
	return i
}

// scattered is a number for an address, whose last digits are even where addresses are
// in a row: splitmix64's last steps.
func scattered(addr netip.AddrPort) uint64 {
	b := addr.Addr().As16()
	x := binary.BigEndian.Uint64(b[:8])*0x9e3779b97f4a7c15 ^ binary.BigEndian.Uint64(b[8:]) ^ uint64(addr.Port())<<48
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// sticky sends back a caller to the endpoint that remembers it.
func (r *render) sticky(svc sdk.Service, endpoints []sdk.Endpoint) []iptables.Rule {
	if svc.Affinity <= 0 {
		return nil
	}
	seconds := min(max(1, int64(svc.Affinity/time.Second)), longestMemory)
	var rules []iptables.Rule
	for _, ep := range endpoints {
		sep := endpointChain(svc.Name, ep.Addr)
		rules = append(rules, iptables.Words(r.leadsTo(svc, ep), "-m recent --rcheck --seconds", seconds, "--reap", callers(svc, sep), "-j", sep))
	}
	return rules
}

// longestMemory is for how many seconds the kernel can remember a caller: it counts
// them in ticks of up to a thousandth, in 32 bits.
const longestMemory = (1<<32 - 1) / 1000

// choose takes each endpoint with the same chance: the first in one of n cases,
// the second in one of the n-1 that are left, the last always.
func (r *render) choose(svc sdk.Service, endpoints []sdk.Endpoint) []iptables.Rule {
	var rules []iptables.Rule
	for i, ep := range endpoints {
		chance := oneIn(1, len(endpoints)-i)
		if r.own[ep.Addr] {
			rules = append(rules, iptables.Words(r.leadsTo(svc, ep), chance, "-j", endpointChain(svc.Name, ep.Addr)))
			continue
		}
		rules = append(rules, iptables.Words(proto(svc), r.leadsTo(svc, ep), chance, "-j DNAT --to-destination", ep.Addr))
	}
	return rules
}

// oneIn is the words that take part cases of whole, and none when that is all.
func oneIn(part, whole int) string {
	if part == whole {
		return ""
	}
	return "-m statistic --mode random --probability " + iptables.Share(part, whole)
}

// endpoint is the chain of an endpoint that needs more than a DNAT: it may call
// itself, or it remembers its clients.
func (r *render) endpoint(svc sdk.Service, ep sdk.Endpoint) {
	id := nat(endpointChain(svc.Name, ep.Addr))
	r.own[ep.Addr] = true
	var rules []iptables.Rule
	if svc.MayCallItself(ep) { // the answer must come back this way
		rules = append(rules, iptables.Words("-s", ep.Addr.Addr(), "-j MARK --set-xmark", iptables.OneBit(r.node.MasqueradeBit)))
	}
	var remember iptables.Rule
	if svc.Affinity > 0 {
		remember = iptables.Words("-m recent --set", callers(svc, id.Chain))
	}
	rules = append(rules, iptables.Words(proto(svc), remember, "-j DNAT --to-destination", ep.Addr))
	r.chain(svc, id, rules...)
}

// callers is the words for the kernel's list of an endpoint's clients.
func callers(svc sdk.Service, name string) iptables.Rule {
	mask := "255.255.255.255"
	if svc.Name.Family == sdk.IPv6 {
		mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return iptables.Words("--name", name, "--mask", mask, "--rsource")
}
