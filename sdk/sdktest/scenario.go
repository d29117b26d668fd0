// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"embed"
	"fmt"
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
func Scenarios() []Scenario {
	entries, err := files.ReadDir("testdata")
	if err != nil {
		panic(err)
	}
	var all []Scenario
	for _, e := range entries {
		s, err := read(e.Name())
		if err != nil {
			panic(err)
		}
		all = append(all, s)
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
	var lacks []sdk.Feature
	for _, f := range s.Needs {
		if !slices.Contains(d.Features, f) {
			lacks = append(lacks, f)
		}
	}
	return lacks
}

// needs returns the features that any of services needs, in the order of sdk.Features.
func needs(services []sdk.Service) []sdk.Feature {
	var all []sdk.Feature
	for _, f := range sdk.Features {
		if slices.ContainsFunc(services, func(s sdk.Service) bool { return slices.Contains(s.Needs(), f) }) {
			all = append(all, f)
		}
	}
	return all
}

func scenarioName(file string) string { return strings.TrimSuffix(path.Base(file), ".txtar") }
