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

// table is the name of ours, in each family.
const table = "pointsman"

// Ceiling is how many endpoints a list may have: as many slots as the largest class.
const Ceiling = 1 << 16

// classes are the numbers of slots among which a frontend chooses, up to the largest.
func classes(largest uint32) (all []uint32) {
	for n := uint32(1); n <= largest; n *= 2 {
		all = append(all, n)
	}
	return all
}

// class is that of so many endpoints.
func class(endpoints int) uint32 {
	return 1 << bits.Len(uint(max(endpoints, 1)-1))
}

// to is a verdict.
func to(v nftnl.Verdict) nftnl.Expr { return nftnl.Do(v) }

// An index is the frontends that are looked up alike: by address, or as node ports; by callers
// from elsewhere, or as pods of the node and the node itself use them.
type index struct {
	ip
	ports, near bool
}

func indexes(f ip) []index {
	return []index{{ip: f}, {ip: f, near: true}, {ip: f, ports: true}, {ip: f, ports: true, near: true}}
}

// of is the name of a set or chain of the index.
func (p index) of(name string) string {
	if p.ports {
		name = "port-" + name
	}
	if p.near {
		name = "near-" + name
	}
	return name
}

// key loads what a packet is looked up by, and says which register is free behind it.
func (p index) key() (rule, nftnl.Reg) {
	if p.ports {
		return rule{loadProto(0), loadPort(1)}, 2
	}
	w := p.Words()
	return rule{p.Daddr(0), loadProto(w), loadPort(w + 1)}, w + 2
}

// original is key, as it was before the packet was translated.
func (p index) original() rule {
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

// in is a rule for the packets whose key is in a set of the index.
func (p index) in(set string, v nftnl.Verdict) rule {
	key, _ := p.key()
	return append(key, nftnl.In(p.of(set), 0), to(v))
}

// was is in, by the original key.
func (p index) was(set string, then ...nftnl.Expr) rule {
	return append(append(p.original(), nftnl.In(p.of(set), 0)), then...)
}

// sets are those of the index.
func (p index) sets(has parts) []nftnl.Set {
	set := func(name string) nftnl.Set { return nftnl.Set{Name: p.of(name), Key: p.fields()} }
	all := []nftnl.Set{
		set("frontends"),
		{Name: p.of("endpoints"), Key: p.fields(nftnl.Mark), Data: []nftnl.Field{p.Addr(), nftnl.Port}},
	}
	for _, n := range has.upTo(p) {
		all = append(all, set(ofClass(n)))
	}
	for _, list := range has.kept(p) {
		all = append(all, nftnl.Set{Name: p.of(forList("keeps", list)), Key: p.fields(), Data: []nftnl.Field{nftnl.Priority}})
	}
	if p.near {
		return all
	}
	return append(all, set("unserved"), set("gated"), set("outside"), set("outside-local"),
		nftnl.Set{Name: p.of("allowed"), Key: p.fields(p.Addr()), Flags: nftnl.Interval})
}

func ofClass(n uint32) string { return "of-" + strconv.Itoa(int(n)) }

// chains are those of the index: the gate, the Service, and the choice of an endpoint.
func (p index) chains(has parts) []chain {
	key, next := p.key()
	far := index{ip: p.ip, ports: p.ports} // with the same frontends, and more
	gate := chain{Name: p.of("gate"), Rules: []rule{
		append(slices.Clone(far.in("gated", nftnl.Return)[:len(key)+1]),
			p.Saddr(next), nftnl.NotIn(far.of("allowed"), 0), to(nftnl.Goto(sourceRange))),
		{to(nftnl.Goto(p.of("service")))},
	}}
	service := chain{Name: p.of("service")}
	for _, list := range has.kept(p) {
		keeps := numbered(slices.Clone(key), p.of(forList("keeps", list)), forList("keep", list))
		service.Rules = append(service.Rules, keeps)
	}
	all := []chain{gate}
	for _, n := range has.upTo(p) {
		name := strconv.Itoa(int(n))
		service.Rules = append(service.Rules, p.in(ofClass(n), nftnl.Goto(p.of("pick-"+name))))
		all = append(all, p.choose(n), chain{Name: p.of("try-" + name), Rules: []rule{
			append(slices.Clone(key), nftnl.Random(n, next),
				nftnl.Find(p.of("endpoints"), 0, 0), nftnl.DNAT(p.NFT(), 0, p.Words())),
		}})
	}
	if p.near { // it has only frontends with endpoints
		service.Rules = append(service.Rules, rule{to(nftnl.Drop)})
	} else {
		service.Rules = append(service.Rules, p.in("unserved", nftnl.Goto(noEndpoint)), rule{to(nftnl.Goto(localWithout))})
	}
	return append(all, service)
}

// tries is how often a slot is drawn before one of those is that are filled for certain.
const tries = 10

// choose is the chain that draws one of n slots, of which more than half are filled.
func (p index) choose(n uint32) chain {
	c := chain{Name: p.of("pick-" + strconv.Itoa(int(n)))}
	try := func(n uint32) {
		c.Rules = append(c.Rules, rule{to(nftnl.Jump(p.of("try-" + strconv.Itoa(int(n)))))})
	}
	if n > 2 {
		for range tries {
			try(n)
		}
		try(n / 2)
	} else {
		try(n)
	}
	if n > 1 {
		try(1) // an element that is being replaced was missing
	}
	c.Rules = append(c.Rules, rule{to(nftnl.Drop)})
	return c
}

// A nodeConfig is what the rules follow with no Service at all.
type nodeConfig struct {
	ip
	node      sdk.Node
	own       []netip.Prefix // those that take node ports, in order
	self      netip.Addr     // one of the node's addresses, by which it answers pings; none: it does not
	uplinks   []flows.Uplink // by which the node's default routes lead
	localhost bool           // node ports answer on 127.0.0.1 too
	liberal   bool           // the kernel takes packets outside the TCP window for valid
	parts
}

// layoutSets are the sets of a family.
func layoutSets(f ip, has parts) []nftnl.Set {
	all := has.affinitySets(f)
	for _, p := range has.indexes(f) {
		all = append(all, p.sets(has)...)
	}
	one := []nftnl.Field{f.Addr()}
	return append(all, nftnl.Set{Name: "vips", Key: one}, nftnl.Set{Name: "external", Key: one}, nftnl.Set{Name: "own", Key: one},
		nftnl.Set{Name: "hairpin", Key: []nftnl.Field{f.Addr(), f.Addr()}})
}

// layoutChains are the chains of a family, with the base chains that a role needs.
func layoutChains(n nodeConfig, role sdk.Role) []chain {
	all := baseChains(n, role)
	for _, p := range n.indexes(n.ip) {
		all = append(all, p.chains(n.parts)...)
	}
	return append(all, n.entrances()...)
}

// baseChains lead packets into the others.
func baseChains(n nodeConfig, role sdk.Role) []chain {
	base := func(name, kind string, at uint32, priority int32, jumps ...string) chain {
		c := chain{Name: name, Hook: &nftnl.Hook{Type: kind, At: at, Priority: priority}}
		for _, j := range jumps {
			c.Rules = append(c.Rules, rule{to(nftnl.Jump(j))})
		}
		return c
	}
	kept := base("nat-kept", "nat", nftnl.PostRouting, 101)
	kept.Rules = []rule{ifUntranslated(nftnl.Accept)}
	all := []chain{kept}
	if n.localhost {
		all = append(all, guard())
	}
	if role == sdk.Active || role == sdk.Draining {
		admit, forget := base("filter-admit", "filter", nftnl.Forward, -1), base("filter-forget", "filter", nftnl.PostRouting, 99)
		admit.Rules, forget.Rules = []rule{begins(role, "admit")}, []rule{begins(role, "forget")}
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

// begins leads to a chain what begins a translated connection. Once another dataplane serves that is only what is sent
// again: the kernel has decided then whether to masquerade the connection, and a mark that others set stays.
func begins(role sdk.Role, chain string) rule {
	status := uint32(translated)
	if role == sdk.Draining {
		status |= confirmed
	}
	return append(append(ofState(stateNew), ofStatus(status)...), to(nftnl.Jump(chain)))
}

// guard keeps what others send to 127.0.0.0/8 from the node, while the kernel may route it.
func guard() chain {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	f := ipOf(sdk.IPv4)
	others := nftnl.Cmp(nftnl.NotEqual, 0, ifname("lo"))
	return chain{
		Name: "guard", Hook: &nftnl.Hook{Type: "filter", At: nftnl.PreRouting, Priority: -300},
		Rules: []rule{append(within(f.Daddr(0), loopback), nftnl.Meta(nftnl.MetaIifName, 0), others, to(nftnl.Drop))},
	}
}
