// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"embed"
	"fmt"
	"iter"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

//go:embed testdata/*.txtar
var files embed.FS

// A Scenario is one thing that a Service means: a node, the Services it serves,
// and where packets go. The package comment has the notation.
type Scenario struct {
	Name     string // the file's name, without its ending
	Doc      string // what is shown, in words
	Node     sdk.Node
	Services []sdk.Service // in canonical order, sorted by name
	Packets  []Packet

	// Manifests are Kubernetes objects, in YAML, from which a host on this node
	// derives exactly Services. Nil: the scenario has none.
	Manifests []byte

	// Needs are the features without which a dataplane cannot serve it all.
	Needs []sdk.Feature
}

// A Packet is a new connection, or the first datagram of a flow, and what becomes
// of it.
type Packet struct {
	Line      int    // in the file
	Text      string // as written there
	From      sdk.Caller
	Interface string // that it comes in on; empty where no matter
	To        netip.AddrPort
	Protocol  sdk.Protocol
	Service   sdk.Name     // that it is for; zero when it is for none of ours
	Frontend  sdk.Frontend // likewise
	Want      Outcome
}

// Scenarios returns all that this package has, sorted by name. They are what every
// dataplane is held to, and a page of the manual each. It panics on a scenario
// that does not parse, which a test of this package rules out.
func Scenarios() (all []Scenario) {
	entries, err := files.ReadDir("testdata")
	for _, e := range entries {
		var s Scenario
		if s, err = read(e.Name()); err != nil {
			break
		}
		all = append(all, s)
	}
	if err != nil {
		panic(err)
	}
	return all
}

func read(file string) (Scenario, error) {
	data, err := files.ReadFile(path.Join("testdata", file))
	if err != nil {
		return Scenario{}, fmt.Errorf("read scenario %s: %w", file, err)
	}
	return Parse(file, data)
}

// Update returns the Full that leads to the scenario from nothing.
func (s Scenario) Update(to uint64) sdk.Update {
	node := s.Node
	return sdk.Update{To: to, Full: true, Node: &node, Set: slices.Clone(s.Services)}
}

// withOutcomes returns s with its packets' outcomes as the rule gives them, for Services that
// were changed.
func (s Scenario) withOutcomes() Scenario {
	s.Packets = slices.Clone(s.Packets)
	for i, p := range s.Packets {
		s.Packets[i].Want = Where(slices.Values(s.Services), s.Node, p.From, p.To, p.Protocol)
	}
	return s
}

// Lacks returns the features that s needs and d does not claim.
func (s Scenario) Lacks(d sdk.Description) []sdk.Feature {
	return slices.DeleteFunc(slices.Clone(s.Needs), func(f sdk.Feature) bool { return slices.Contains(d.Features, f) })
}

// needs returns the features that any of services needs, in the order of sdk.Features.
func needs(services []sdk.Service) []sdk.Feature {
	return slices.DeleteFunc(slices.Clone(sdk.Features), func(f sdk.Feature) bool {
		return !slices.ContainsFunc(services, func(s sdk.Service) bool { return slices.Contains(s.Needs(), f) })
	})
}

// An Outcome is what becomes of a packet.
type Outcome struct {
	Verdict sdk.Verdict

	// Endpoints, with Forward, are exactly those that may be chosen, sorted.
	Endpoints []netip.AddrPort

	// Masquerade: the endpoint sees the node, not the caller.
	Masquerade bool

	// Hairpin are endpoints that are the caller itself. They see the node
	// although the other endpoints see the caller.
	Hairpin []netip.AddrPort

	// Unserved: no frontend of ours is meant; the packet passes by untouched.
	Unserved bool
}

// Masquerades reports whether ep sees the node and not the caller.
func (o Outcome) Masquerades(ep netip.AddrPort) bool {
	return o.Masquerade || slices.Contains(o.Hairpin, ep)
}

// Equal reports whether o and p are the same.
func (o Outcome) Equal(p Outcome) bool { return o.String() == p.String() }

// String reads as on the right side of a packet in a scenario.
func (o Outcome) String() string {
	switch {
	case o.Unserved:
		return "unserved"
	case o.Verdict != sdk.Forward:
		return o.Verdict.String()
	}
	words := make([]string, 0, len(o.Endpoints)+1)
	for _, ep := range o.Endpoints {
		word := ep.String()
		if slices.Contains(o.Hairpin, ep) {
			word += "(masq)"
		}
		words = append(words, word)
	}
	if o.Masquerade {
		words = append(words, "masq")
	}
	return strings.Join(words, " ")
}

// Where says what becomes of a packet, by the contract's own rule.
func Where(services iter.Seq[sdk.Service], node sdk.Node, from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Outcome {
	svc, f, ok := Find(services, node, to, protocol)
	if !ok {
		return Outcome{Unserved: true}
	}
	r := svc.Route(f, from, node)
	o := Outcome{Verdict: r.Verdict, Masquerade: r.Masquerade}
	for _, ep := range r.Endpoints {
		o.Endpoints = append(o.Endpoints, ep.Addr)
		if !r.Masquerade && r.Masquerades(ep, from) {
			o.Hairpin = append(o.Hairpin, ep.Addr)
		}
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	slices.SortFunc(o.Hairpin, netip.AddrPort.Compare)
	return o
}

// Find returns the frontend that a packet to an address is for. One that names the
// address takes precedence over one that stands for all that take node ports.
func Find(services iter.Seq[sdk.Service], node sdk.Node, to netip.AddrPort, protocol sdk.Protocol) (sdk.Service, sdk.Frontend, bool) {
	every := netip.AddrPortFrom(netip.IPv4Unspecified(), to.Port())
	if to.Addr().Is6() {
		every = netip.AddrPortFrom(netip.IPv6Unspecified(), to.Port())
	}
	takes := slices.Contains(node.Addrs, to.Addr()) && node.TakesNodePorts(to.Addr())
	var svc sdk.Service
	var found sdk.Frontend
	for s := range services {
		if s.Name.Protocol != protocol {
			continue
		}
		for _, f := range s.Frontends {
			switch {
			case f.Addr == to:
				return s, f, true
			case f.Addr == every && takes:
				svc, found = s, f
			}
		}
	}
	return svc, found, found.Kind != 0
}
