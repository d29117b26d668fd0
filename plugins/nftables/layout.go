// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strconv"

	"github.com/pointsman/pointsman/plugins/internal/nftable"
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
	n := uint32(1)
	for int(n) < endpoints {
		n *= 2
	}
	return n
}

func to(v nftnl.Verdict) nftnl.Expr { return nftnl.Do(v) }

// An ip is an IP family: where its headers have what, in registers of 4 bytes.
type ip struct{ sdk.Family }

func (f ip) nft() nftnl.Family { return pick(f, nftnl.IPv4, nftnl.IPv6) }
func (f ip) words() nftnl.Reg  { return pick[nftnl.Reg](f, 1, 4) }
func (f ip) addr() nftnl.Field { return pick(f, nftnl.Addr4, nftnl.Addr6) }

// pick is the value for the family.
func pick[T any](f ip, four, six T) T {
	if f.Family == sdk.IPv6 {
		return six
	}
	return four
}

func (f ip) saddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, pick[uint32](f, 12, 8), uint32(f.addr().Len), into)
}

func (f ip) daddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.Payload(nftnl.Network, pick[uint32](f, 16, 24), uint32(f.addr().Len), into)
}

func (f ip) origDaddr(into nftnl.Reg) nftnl.Expr {
	return nftnl.CTOriginal(pick(f, nftnl.CTDstIP, nftnl.CTDstIP6), into)
}

func proto(into nftnl.Reg) nftnl.Expr    { return nftnl.Meta(nftnl.MetaL4Proto, into) }
func dport(into nftnl.Reg) nftnl.Expr    { return nftnl.Payload(nftnl.Transport, 2, 2, into) }
func origPort(into nftnl.Reg) nftnl.Expr { return nftnl.CTOriginal(nftnl.CTProtoDst, into) }

// mark is a number in host order, as marks, slots and the bits of a connection have it.
func mark(n uint32) string { return string(binary.NativeEndian.AppendUint32(nil, n)) }

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

// far is the index with the same frontends, and more, for callers from elsewhere.
func (p index) far() index {
	p.near = false
	return p
}

// key loads what a packet is looked up by, and says which register is free behind it.
func (p index) key() (nftable.Rule, nftnl.Reg) {
	if p.ports {
		return nftable.Rule{proto(0), dport(1)}, 2
	}
	w := p.words()
	return nftable.Rule{p.daddr(0), proto(w), dport(w + 1)}, w + 2
}

// original is key, as it was before the packet was translated.
func (p index) original() nftable.Rule {
	if p.ports {
		return nftable.Rule{proto(0), origPort(1)}
	}
	w := p.words()
	return nftable.Rule{p.origDaddr(0), proto(w), origPort(w + 1)}
}

func (p index) fields(more ...nftnl.Field) []nftnl.Field {
	fields := []nftnl.Field{nftnl.Proto, nftnl.Port}
	if !p.ports {
		fields = slices.Insert(fields, 0, p.addr())
	}
	return append(fields, more...)
}

// in is a rule for the packets whose key is in a set of the index.
func (p index) in(set string, v nftnl.Verdict) nftable.Rule {
	key, _ := p.key()
	return append(key, nftnl.In(p.of(set), 0), to(v))
}

// was is in, by the original key.
func (p index) was(set string, then ...nftnl.Expr) nftable.Rule {
	return append(append(p.original(), nftnl.In(p.of(set), 0)), then...)
}

// sets are those of the index.
func (p index) sets(has parts) []nftnl.Set {
	set := func(name string) nftnl.Set { return nftnl.Set{Name: p.of(name), Key: p.fields()} }
	all := []nftnl.Set{
		set("frontends"),
		{Name: p.of("endpoints"), Key: p.fields(nftnl.Mark), Data: []nftnl.Field{p.addr(), nftnl.Port}},
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
		nftnl.Set{Name: p.of("allowed"), Key: p.fields(p.addr()), Flags: nftnl.Interval})
}

func ofClass(n uint32) string { return "of-" + strconv.Itoa(int(n)) }

// chains are those of the index: the gate, the Service, and the choice of an endpoint.
func (p index) chains(has parts) []nftable.Chain {
	key, next := p.key()
	far := p.far()
	gate := nftable.Chain{Name: p.of("gate"), Rules: []nftable.Rule{
		append(slices.Clone(far.in("gated", nftnl.Return)[:len(key)+1]),
			p.saddr(next), nftnl.NotIn(far.of("allowed"), 0), to(nftnl.Drop)),
		{to(nftnl.Goto(p.of("service")))},
	}}
	service := nftable.Chain{Name: p.of("service")}
	for _, list := range has.kept(p) {
		keeps := numbered(slices.Clone(key), p.of(forList("keeps", list)), forList("keep", list))
		service.Rules = append(service.Rules, keeps)
	}
	all := []nftable.Chain{gate}
	for _, n := range has.upTo(p) {
		name := strconv.Itoa(int(n))
		service.Rules = append(service.Rules, p.in(ofClass(n), nftnl.Goto(p.of("pick-"+name))))
		all = append(all, p.choose(n), nftable.Chain{Name: p.of("try-" + name), Rules: []nftable.Rule{
			append(slices.Clone(key), nftnl.Random(n, next),
				nftnl.Find(p.of("endpoints"), 0, 0), nftnl.DNAT(p.nft(), 0, p.words())),
		}})
	}
	if !p.near {
		service.Rules = append(service.Rules, p.in("unserved", nftnl.Goto("refuse")))
	}
	service.Rules = append(service.Rules, nftable.Rule{to(nftnl.Drop)})
	return append(all, service)
}

// tries is how often a slot is drawn before one of those is that are filled for certain.
const tries = 10

// choose is the chain that draws one of n slots, of which more than half are filled.
func (p index) choose(n uint32) nftable.Chain {
	c := nftable.Chain{Name: p.of("pick-" + strconv.Itoa(int(n)))}
	try := func(n uint32) {
		c.Rules = append(c.Rules, nftable.Rule{to(nftnl.Jump(p.of("try-" + strconv.Itoa(int(n)))))})
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
	c.Rules = append(c.Rules, nftable.Rule{to(nftnl.Drop)})
	return c
}

// A nodeConfig is what the rules follow with no Service at all.
type nodeConfig struct {
	ip
	node      sdk.Node
	self      netip.Addr // one of the node's addresses, by which it answers pings; none: it does not
	localhost bool       // node ports answer on 127.0.0.1 too
	liberal   bool       // the kernel takes packets outside the TCP window for valid
	counts    bool       // connections are counted for each endpoint
	parts
}

// layoutSets are the sets of a family.
func layoutSets(f ip, has parts) []nftnl.Set {
	all := has.affinitySets(f)
	for _, p := range has.indexes(f) {
		all = append(all, p.sets(has)...)
	}
	one := []nftnl.Field{f.addr()}
	return append(all, countedSet(f), nftnl.Set{Name: "vips", Key: one}, nftnl.Set{Name: "own", Key: one},
		nftnl.Set{Name: "hairpin", Key: []nftnl.Field{f.addr(), f.addr()}})
}

// layout are the chains of a family, with the base chains that a role needs.
func layout(n nodeConfig, role sdk.Role) []nftable.Chain {
	all := baseChains(n, role)
	for _, p := range n.indexes(n.ip) {
		all = append(all, p.chains(n.parts)...)
	}
	if n.counts {
		all = append(all, n.count())
	}
	return append(all, n.entrances()...)
}

// baseChains lead packets into the others.
func baseChains(n nodeConfig, role sdk.Role) []nftable.Chain {
	base := func(name, kind string, at uint32, priority int32, jumps ...string) nftable.Chain {
		c := nftable.Chain{Name: name, Hook: &nftnl.Hook{Type: kind, At: at, Priority: priority}}
		if last := at == nftnl.PostRouting || at == nftnl.Input; last && n.counts && len(jumps) > 0 {
			jumps = slices.Insert(jumps, 0, "count")
		}
		for _, j := range jumps {
			c.Rules = append(c.Rules, nftable.Rule{to(nftnl.Jump(j))})
		}
		return c
	}
	kept := base("nat-kept", "nat", nftnl.PostRouting, 101)
	kept.Rules = []nftable.Rule{untranslated(nftnl.Accept)}
	all := []nftable.Chain{kept}
	if n.localhost {
		all = append(all, guard())
	}
	if role == sdk.Active || role == sdk.Draining {
		all = append(all, base("nat-postrouting", "nat", nftnl.PostRouting, 100, "post"))
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

// guard keeps what others send to 127.0.0.0/8 from the node, while the kernel may route it.
func guard() nftable.Chain {
	loopback := netip.MustParsePrefix("127.0.0.0/8")
	f := ip{sdk.IPv4}
	elsewhere := nftable.Rule{
		nftnl.Meta(nftnl.MetaIifName, 0), nftnl.Cmp(nftnl.NotEqual, 0, ifname("lo")), to(nftnl.Drop),
	}
	return nftable.Chain{
		Name: "guard", Hook: &nftnl.Hook{Type: "filter", At: nftnl.PreRouting, Priority: -300},
		Rules: []nftable.Rule{append(within(f.daddr(0), loopback), elsewhere...)},
	}
}

const translated = 1 << 5 // IPS_DST_NAT, of a connection's status: its destination is translated

// untranslated is a rule for packets that no rule has sent elsewhere than they were sent.
func untranslated(v nftnl.Verdict) nftable.Rule {
	return nftable.Rule{
		nftnl.CT(nftnl.CTStatus, 0), nftnl.Mask(0, mark(translated)), nftnl.Cmp(nftnl.Equal, 0, mark(0)), to(v),
	}
}

// within goes on if an address that load puts into register 0 is in a range.
func within(load nftnl.Expr, in netip.Prefix) nftable.Rule {
	if in.Bits() == 0 {
		return nil
	}
	bits := make([]byte, in.Addr().BitLen()/8)
	for i := range in.Bits() {
		bits[i/8] |= 0x80 >> (i % 8)
	}
	r := nftable.Rule{load}
	if in.Bits() < in.Addr().BitLen() {
		r = append(r, nftnl.Mask(0, string(bits)))
	}
	return append(r, nftnl.Cmp(nftnl.Equal, 0, string(in.Masked().Addr().AsSlice())))
}

// ifname is the whole name of an interface, as the kernel compares it.
func ifname(name string) string {
	var b [16]byte
	copy(b[:], name)
	return string(b[:])
}
