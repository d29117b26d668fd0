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

// A Scenario shows one aspect of Services: a node, the Services it serves, and the outcome of
// packets. The package comment has the notation.
type Scenario struct {
	Name     string // name of the file without its extension
	Doc      string // description
	Node     sdk.Node
	Services []sdk.Service // in canonical order, sorted by name
	Packets  []Packet

	// Manifests are Kubernetes objects in YAML from which a host on this node derives exactly
	// Services. Nil if the scenario has none.
	Manifests []byte
}

// A Packet is the first packet of a connection, or the first datagram of a flow, with its
// outcome.
type Packet struct {
	Line      int    // line in the file
	Text      string // text of that line
	From      sdk.Caller
	Interface string // input interface; empty if it does not matter
	To        netip.AddrPort
	Protocol  sdk.Protocol
	Service   sdk.Name     // the Service that it is for; zero if none
	Frontend  sdk.Frontend // the frontend that it is for; zero if none
	Want      Outcome
}

// Scenarios returns all scenarios of this package, sorted by name. Every dataplane is tested
// with them. It panics if a scenario does not parse; a test of this package prevents that.
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

// Update returns a Full with the scenario's state.
func (s Scenario) Update(to uint64) sdk.Update {
	node := s.Node
	return sdk.Update{To: to, Full: true, Node: &node, Set: slices.Clone(s.Services)}
}

// withOutcomes returns s with the outcomes of its packets recomputed after its Services were
// changed.
func (s Scenario) withOutcomes() Scenario {
	s.Packets = slices.Clone(s.Packets)
	for i, p := range s.Packets {
		s.Packets[i].Want = Where(slices.Values(s.Services), s.Node, p.From, p.To, p.Protocol)
	}
	return s
}

// Lacks returns the features that the Services need and d does not claim, in the order of sdk.Features.
func (s Scenario) Lacks(d sdk.Description) []sdk.Feature {
	return slices.DeleteFunc(slices.Clone(sdk.Features), func(f sdk.Feature) bool {
		needs := func(svc sdk.Service) bool { return slices.Contains(svc.Needs(), f) }
		return slices.Contains(d.Features, f) || !slices.ContainsFunc(s.Services, needs)
	})
}

// An Outcome is the expected result of a packet.
type Outcome struct {
	Verdict sdk.Verdict

	// Endpoints are, for Forward, exactly the endpoints that may be chosen, sorted.
	Endpoints []netip.AddrPort

	// Masquerade means that the endpoint sees the node's address instead of the caller's.
	Masquerade bool

	// Hairpin are endpoints that are the caller itself. They see the node's address even if the
	// other endpoints see the caller's.
	Hairpin []netip.AddrPort

	// Unserved means that the packet is for no frontend and is not touched.
	Unserved bool
}

// Masquerades reports whether ep sees the node's address instead of the caller's.
func (o Outcome) Masquerades(ep netip.AddrPort) bool {
	return o.Masquerade || slices.Contains(o.Hairpin, ep)
}

// Equal reports whether o and p are equal.
func (o Outcome) Equal(p Outcome) bool { return o.String() == p.String() }

// String returns the form used on the right side of a packet in a scenario.
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

// Where returns the outcome of a packet according to the contract's rule.
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

// Find returns the frontend that a packet to an address is for. A frontend with that address
// takes precedence over one for all addresses that accept node ports.
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
