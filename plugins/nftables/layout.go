// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"math/bits"
	"net/netip"
	"slices"
	"strconv"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// table is the name of the dataplane's table in each family.
const table = "pointsman"

// Ceiling is the maximum length of an endpoint list: the number of slots of the largest class.
const Ceiling = 1 << 16

// classes returns the numbers of slots among which a frontend can choose, up to largest.
func classes(largest uint32) (all []uint32) {
	for n := uint32(1); n <= largest; n *= 2 {
		all = append(all, n)
	}
	return all
}

// classOf returns the class for a number of endpoints.
func classOf(endpoints int) uint32 {
	return 1 << bits.Len(uint(max(endpoints, 1)-1))
}

// verdict returns an expression with a verdict.
func verdict(v nftnl.Verdict) nftnl.Expr { return nftnl.Do(v) }

// An index is a group of frontends that packets look up in the same sets. There are frontends with an address
// and node ports (ports), and for each of the two a group for pods of this node and the node itself (near).
type index struct {
	ip
	ports, near bool
}

func indexes(f ip) []index {
	return []index{{ip: f}, {ip: f, near: true}, {ip: f, ports: true}, {ip: f, ports: true, near: true}}
}

// name returns the name of a set or chain of the index.
func (p index) name(name string) string {
	if p.ports {
		name = "port-" + name
	}
	if p.near {
		name = "near-" + name
	}
	return name
}

// loadKey returns the expressions that load the key of a packet, and the next free register.
func (p index) loadKey() (rule, nftnl.Reg) {
	if p.ports {
		return rule{loadProto(0), loadPort(1)}, 2
	}
	w := p.Words()
	return rule{p.Daddr(0), loadProto(w), loadPort(w + 1)}, w + 2
}

// loadOriginalKey is loadKey for the destination before translation.
func (p index) loadOriginalKey() rule {
	if p.ports {
		return rule{loadProto(0), loadOrigPort(1)}
	}
	w := p.Words()
	return rule{p.OrigDaddr(0), loadProto(w), loadOrigPort(w + 1)}
}

func (p index) fields(more ...nftnl.Field) []nftnl.Field {
	fields := []nftnl.Field{nftnl.Proto, nftnl.Port}
	if !p.ports {
		fields = slices.Insert(fields, 0, p.Addr())
	}
	return append(fields, more...)
}

// match returns a rule for packets whose key is in a set of the index.
func (p index) match(set string, v nftnl.Verdict) rule {
	key, _ := p.loadKey()
	return append(key, nftnl.In(p.name(set), 0), verdict(v))
}

// matchOriginal is match with the key before translation.
func (p index) matchOriginal(set string, then ...nftnl.Expr) rule {
	return append(append(p.loadOriginalKey(), nftnl.In(p.name(set), 0)), then...)
}

// sets returns the sets of the index.
func (p index) sets(has parts) []nftnl.Set {
	set := func(name string) nftnl.Set { return nftnl.Set{Name: p.name(name), Key: p.fields()} }
	all := []nftnl.Set{
		set("frontends"),
		{Name: p.name("endpoints"), Key: p.fields(nftnl.Mark), Data: []nftnl.Field{p.Addr(), nftnl.Port}},
	}
	for _, n := range has.classesOf(p) {
		all = append(all, set(classSet(n)))
	}
	for _, list := range has.affinityPolicies(p) {
		all = append(all, nftnl.Set{Name: p.name(forPolicy("keeps", list)), Key: p.fields(), Data: []nftnl.Field{nftnl.Priority}})
	}
	if p.near {
		return all
	}
	return append(all, set("unserved"), set("gated"), set("outside"), set("outside-local"),
		nftnl.Set{Name: p.name("allowed"), Key: p.fields(p.Addr()), Flags: nftnl.Interval})
}

func classSet(n uint32) string { return "of-" + strconv.Itoa(int(n)) }

// chains returns the chains of the index: the gate, the Service, and the choice of an endpoint.
func (p index) chains(has parts) []chain {
	key, next := p.loadKey()
	far := index{ip: p.ip, ports: p.ports} // has the frontends of near, and others
	gate := chain{Name: p.name("gate"), Rules: []rule{
		append(slices.Clone(far.match("gated", nftnl.Return)[:len(key)+1]),
			p.Saddr(next), nftnl.NotIn(far.name("allowed"), 0), verdict(nftnl.Goto(sourceRange))),
		{verdict(nftnl.Goto(p.name("service")))},
	}}
	service := chain{Name: p.name("service")}
	for _, list := range has.affinityPolicies(p) {
		keeps := jumpWithNumber(slices.Clone(key), p.name(forPolicy("keeps", list)), forPolicy("keep", list))
		service.Rules = append(service.Rules, keeps)
	}
	all := []chain{gate}
	for _, n := range has.classesOf(p) {
		name := strconv.Itoa(int(n))
		service.Rules = append(service.Rules, p.match(classSet(n), nftnl.Goto(p.name("pick-"+name))))
		all = append(all, p.pickChain(n), chain{Name: p.name("try-" + name), Rules: []rule{
			append(slices.Clone(key), nftnl.Random(n, next),
				nftnl.Find(p.name("endpoints"), 0, 0), nftnl.DNAT(p.NFT(), 0, p.Words())),
		}})
	}
	if p.near { // every near frontend has endpoints, so this rule is a safeguard
		service.Rules = append(service.Rules, rule{verdict(nftnl.Drop)})
	} else {
		service.Rules = append(service.Rules, p.match("unserved", nftnl.Goto(noEndpoint)), rule{verdict(nftnl.Goto(localWithoutEndpoint))})
	}
	return append(all, service)
}

// pickTries is the number of random draws among all slots, of which some may be empty, before one among the
// slots that are always filled.
const pickTries = 10

// pickChain returns the chain that draws one of n slots, of which more than half are filled.
func (p index) pickChain(n uint32) chain {
	c := chain{Name: p.name("pick-" + strconv.Itoa(int(n)))}
	try := func(n uint32) {
		c.Rules = append(c.Rules, rule{verdict(nftnl.Jump(p.name("try-" + strconv.Itoa(int(n)))))})
	}
	if n > 2 {
		for range pickTries {
			try(n)
		}
		try(n / 2)
	} else {
		try(n)
	}
	if n > 1 {
		try(1) // slot 0, in case an element was missing while it was replaced
	}
	c.Rules = append(c.Rules, rule{verdict(nftnl.Drop)})
	return c
}

// A nodeConfig has the inputs of the layout that do not depend on single Services.
type nodeConfig struct {
	ip
	node      sdk.Node
	own       []netip.Prefix // prefixes of the node that take node ports, sorted
	uplinks   []flows.Uplink // interfaces of the node's default routes
	localhost bool           // node ports are served on 127.0.0.1 too
	liberal   bool           // conntrack accepts packets outside the TCP window (tcp_be_liberal)
	parts
}

// layoutSets returns the sets of a family.
func layoutSets(f ip, has parts) []nftnl.Set {
	all := has.affinitySets(f)
	for _, p := range has.indexes(f) {
		all = append(all, p.sets(has)...)
	}
	one := []nftnl.Field{f.Addr()}
	return append(all, nftnl.Set{Name: "vips", Key: one}, nftnl.Set{Name: "external", Key: one}, nftnl.Set{Name: "own", Key: one},
		nftnl.Set{Name: "hairpin", Key: []nftnl.Field{f.Addr(), f.Addr()}})
}

// layoutChains returns the chains of a family, with the base chains that a role needs.
func layoutChains(n nodeConfig, role sdk.Role) []chain {
	all := baseChains(n, role)
	for _, p := range n.indexes(n.ip) {
		all = append(all, p.chains(n.parts)...)
	}
	return append(all, n.packetChains()...)
}

// baseChains returns the chains with a hook that role needs. They jump to the regular chains.
func baseChains(n nodeConfig, role sdk.Role) []chain {
	base := func(name, kind string, at uint32, priority int32, jumps ...string) chain {
		c := chain{Name: name, Hook: &nftnl.Hook{Type: kind, At: at, Priority: priority}}
		for _, j := range jumps {
			c.Rules = append(c.Rules, rule{verdict(nftnl.Jump(j))})
		}
		return c
	}
	kept := base("nat-kept", "nat", nftnl.PostRouting, 101)
	kept.Rules = []rule{ifUntranslated(nftnl.Accept)}
	all := []chain{kept}
	if n.localhost {
		all = append(all, guardChain())
	}
	if role == sdk.Active || role == sdk.Draining {
		admit, forget := base("filter-admit", "filter", nftnl.Forward, -1), base("filter-forget", "filter", nftnl.PostRouting, 99)
		admit.Rules, forget.Rules = []rule{jumpIfNew(role, "admit")}, []rule{jumpIfNew(role, "forget")}
		all = append(all, base("nat-postrouting", "nat", nftnl.PostRouting, 100, "post"), admit, forget)
	}
	if role == sdk.Active {
		all = append(all,
			base("nat-prerouting", "nat", nftnl.PreRouting, -100, "pre"),
			base("nat-output", "nat", nftnl.Output, -100, "out"),
			base("nat-input", "nat", nftnl.Input, 100, "remember"),
			base("filter-forward", "filter", nftnl.Forward, 0, "invalid", "refused"),
			base("filter-output", "filter", nftnl.Output, 0, "refused"))
	}
	return all
}

// jumpIfNew returns a rule that jumps to a chain for new translated connections. While Draining it matches only
// packets of a confirmed connection, which are retransmissions: another dataplane serves new connections, the
// kernel has decided whether to masquerade this one, and marks that others set must stay.
func jumpIfNew(role sdk.Role, chain string) rule {
	status := uint32(translated)
	if role == sdk.Draining {
		status |= confirmed
	}
	return append(append(matchState(stateNew), matchStatus(status)...), verdict(nftnl.Jump(chain)))
}

// guardChain drops packets that arrive from other hosts for 127.0.0.0/8, which the kernel may route
// (route_localnet).
func guardChain() chain {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	f := ipOf(sdk.IPv4)
	others := nftnl.Cmp(nftnl.NotEqual, 0, ifname("lo"))
	return chain{
		Name: "guard", Hook: &nftnl.Hook{Type: "filter", At: nftnl.PreRouting, Priority: -300},
		Rules: []rule{append(matchPrefix(f.Daddr(0), loopback), nftnl.Meta(nftnl.MetaIifName, 0), others, verdict(nftnl.Drop))},
	}
}
