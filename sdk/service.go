// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Name says which port of which Service, in which IP family, is meant. It is
// the key everywhere: comparable, and never taken apart from a string.
type Name struct {
	Namespace string
	Service   string
	Port      string // the port's name; empty when the Service has one unnamed port
	Protocol  Protocol
	Family    Family
}

// String reads as kubectl would write it, with the network as Go names it:
// "ns1/web:http/tcp4".
func (n Name) String() string {
	var b strings.Builder
	b.WriteString(n.Namespace + "/" + n.Service)
	if n.Port != "" {
		b.WriteString(":" + n.Port)
	}
	b.WriteString("/" + n.Network())
	return b.String()
}

// Network is the protocol and family in the words of package net: "tcp4", "udp6".
func (n Name) Network() string {
	switch n.Family {
	case IPv4:
		return n.Protocol.String() + "4"
	case IPv6:
		return n.Protocol.String() + "6"
	}
	return n.Protocol.String() + "?"
}

// Compare orders names by namespace, Service, port, protocol and family.
func (n Name) Compare(m Name) int {
	return cmp.Or(
		cmp.Compare(n.Namespace, m.Namespace),
		cmp.Compare(n.Service, m.Service),
		cmp.Compare(n.Port, m.Port),
		cmp.Compare(n.Protocol, m.Protocol),
		cmp.Compare(n.Family, m.Family),
	)
}

// A Protocol is a transport protocol. The zero value is none; a value this
// version does not know is kept as it is, and refused by [Service.Check].
type Protocol uint8

// The protocols a Service can have.
const (
	TCP Protocol = iota + 1
	UDP
	SCTP
)

var protocols = []string{TCP: "tcp", UDP: "udp", SCTP: "sctp"}

func (p Protocol) String() string { return word(protocols, uint8(p), "protocol") }

// A Family is an IP family. A dual-stack Service is two Services here, one in
// each family. The zero value is none.
type Family uint8

// The two families.
const (
	IPv4 Family = iota + 1
	IPv6
)

var families = []string{IPv4: "ipv4", IPv6: "ipv6"}

func (f Family) String() string { return word(families, uint8(f), "family") }

// FamilyOf is the family that addr belongs to. An IPv4 address mapped into IPv6
// is IPv6 to the sdk, because the kernel's tables see it so: unmap it first.
func FamilyOf(addr netip.Addr) Family {
	switch {
	case addr.Is4():
		return IPv4
	case addr.Is6():
		return IPv6
	}
	return 0
}

// A Service is one port of one Kubernetes Service in one IP family, as this node
// must serve it. All of Kubernetes' reasoning (type, policy, topology, readiness,
// termination) is behind it: a dataplane forwards what is sent to a frontend to
// an endpoint of the list that [Service.Route] names, and need know nothing else.
//
// Services are values: whoever holds one may keep it and must not write to its
// slices or its map. The host hands them out with every list in canonical order
// (see [Service.Normalize]), so two equal Services are equal field by field.
type Service struct {
	Name      Name
	Frontends []Frontend

	// Cluster are the endpoints for the Cluster policy. The host always fills
	// them, whatever the policies in use: empty means that nobody anywhere can
	// serve, and callers are rejected.
	Cluster []Endpoint

	// Local are the endpoints for the Local policy: those on this node.
	Local []Endpoint

	// Serving are, for UDP only, further addresses that still serve, whatever
	// policy, topology and readiness say. A flow whose replies come from one of
	// them, or from an endpoint above, is not forgotten (contract line 9).
	Serving []netip.Addr

	// Affinity is how long a client keeps its endpoint after its last new
	// connection. It is one per Service over all its frontends; zero is none.
	Affinity time.Duration

	// HealthPort is the Service's healthCheckNodePort. The host answers there;
	// a dataplane that filters lets it in while any Service names it. Zero: none.
	HealthPort uint16

	// Hints are what only some dataplanes know, such as an ipvs scheduler. They
	// never change who may be reached, and an unknown one is ignored.
	Hints map[string]string
}

// Endpoints is the list that policy p draws from.
func (s Service) Endpoints(p Policy) []Endpoint {
	if p == Local {
		return s.Local
	}
	return s.Cluster
}

// Uses reports whether any frontend follows policy p.
func (s Service) Uses(p Policy) bool {
	return slices.ContainsFunc(s.Frontends, func(f Frontend) bool { return f.Policy == p })
}

// Reachable are the endpoints that some caller may be sent to: Cluster and
// Local, in order and without repetition.
func (s Service) Reachable() []Endpoint {
	all := slices.Concat(s.Cluster, s.Local)
	slices.SortFunc(all, Endpoint.Compare)
	return slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Addr == b.Addr })
}

// Equal reports whether s and t mean the same, both being in canonical order.
func (s Service) Equal(t Service) bool {
	return s.Name == t.Name &&
		s.Affinity == t.Affinity &&
		s.HealthPort == t.HealthPort &&
		slices.EqualFunc(s.Frontends, t.Frontends, Frontend.Equal) &&
		slices.Equal(s.Cluster, t.Cluster) &&
		slices.Equal(s.Local, t.Local) &&
		slices.Equal(s.Serving, t.Serving) &&
		maps.Equal(s.Hints, t.Hints)
}

// Normalize puts the lists of s in canonical order: sorted, each address once.
// It sorts in place, so it is for whoever makes a Service.
func (s *Service) Normalize() {
	slices.SortFunc(s.Frontends, Frontend.Compare)
	for i := range s.Frontends {
		slices.SortFunc(s.Frontends[i].Sources, ComparePrefix)
		s.Frontends[i].Sources = slices.Compact(s.Frontends[i].Sources)
	}
	for _, list := range []*[]Endpoint{&s.Cluster, &s.Local} {
		slices.SortFunc(*list, Endpoint.Compare)
		*list = slices.CompactFunc(*list, func(a, b Endpoint) bool { return a.Addr == b.Addr })
	}
	slices.SortFunc(s.Serving, netip.Addr.Compare)
	s.Serving = slices.Compact(s.Serving)
}

// Check reports what is wrong with s, if anything: a value that this version
// does not know, an address of the other family, a port of zero, no name. Serve
// calls it on every Service that comes in, so a dataplane sees only sound ones.
func (s Service) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if s.Name.Namespace == "" || s.Name.Service == "" {
		bad("name %q lacks a namespace or a Service", s.Name)
	}
	if !known(protocols, uint8(s.Name.Protocol)) {
		bad("unknown protocol %d", s.Name.Protocol)
	}
	if !known(families, uint8(s.Name.Family)) {
		bad("unknown IP family %d", s.Name.Family)
	}
	if s.Affinity < 0 {
		bad("negative affinity %s", s.Affinity)
	}
	for _, f := range s.Frontends {
		if err := f.check(s.Name.Family); err != nil {
			bad("frontend %s: %w", f, err)
		}
	}
	for _, list := range [][]Endpoint{s.Cluster, s.Local} {
		for _, ep := range list {
			if FamilyOf(ep.Addr.Addr()) != s.Name.Family || ep.Addr.Port() == 0 || ep.Addr.Addr().IsUnspecified() {
				bad("endpoint %s is no %s address with a port", ep.Addr, s.Name.Family)
			}
		}
	}
	for _, addr := range s.Serving {
		if FamilyOf(addr) != s.Name.Family {
			bad("serving address %s is no %s address", addr, s.Name.Family)
		}
	}
	return errors.Join(errs...)
}

// A Frontend is one address that callers send to.
type Frontend struct {
	Kind Kind

	// Addr is the address and port. An unspecified IP (0.0.0.0 or ::) stands for
	// every address of the node that takes node ports; where a specific address
	// names the same port, it goes first.
	Addr netip.AddrPort

	Policy Policy

	// Sources are the ranges that callers must come from; nil or empty is
	// anyone. The host has added the frontend's own address where a range holds
	// a node address, because the node may call itself by that name.
	Sources []netip.Prefix
}

// External reports whether callers outside the cluster use f. Everything that is
// no ClusterIP is external, also for the callers inside.
func (f Frontend) External() bool { return f.Kind != ClusterIP }

// Allows reports whether a caller from addr may use f at all.
func (f Frontend) Allows(addr netip.Addr) bool {
	return len(f.Sources) == 0 ||
		slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// String reads as in a scenario: "node-port *:30080 local".
func (f Frontend) String() string {
	var b strings.Builder
	b.WriteString(f.Kind.String() + " ")
	if f.Kind == NodePort && f.Addr.Addr().IsUnspecified() {
		b.WriteString("*:" + strconv.Itoa(int(f.Addr.Port())))
	} else {
		b.WriteString(f.Addr.String())
	}
	if f.Policy != Cluster {
		b.WriteString(" " + f.Policy.String())
	}
	for i, p := range f.Sources {
		if i == 0 {
			b.WriteString(" from")
		}
		b.WriteString(" " + p.String())
	}
	return b.String()
}

// Equal reports whether f and g mean the same, both being in canonical order.
func (f Frontend) Equal(g Frontend) bool {
	return f.Kind == g.Kind && f.Addr == g.Addr && f.Policy == g.Policy && slices.Equal(f.Sources, g.Sources)
}

// Compare orders frontends by kind, address and port.
func (f Frontend) Compare(g Frontend) int {
	return cmp.Or(cmp.Compare(f.Kind, g.Kind), f.Addr.Compare(g.Addr))
}

func (f Frontend) check(family Family) error {
	switch {
	case !known(kinds, uint8(f.Kind)):
		return fmt.Errorf("unknown kind %d", f.Kind)
	case !known(policies, uint8(f.Policy)):
		return fmt.Errorf("unknown policy %d", f.Policy)
	case FamilyOf(f.Addr.Addr()) != family || f.Addr.Port() == 0:
		return fmt.Errorf("no %s address with a port", family)
	case f.Kind != NodePort && f.Addr.Addr().IsUnspecified():
		return errors.New("only a node port may stand for every address")
	}
	for _, p := range f.Sources {
		if !p.IsValid() || FamilyOf(p.Addr()) != family {
			return fmt.Errorf("source range %s is no %s range", p, family)
		}
	}
	return nil
}

// A Kind is one of the four ways in that Kubernetes gives a Service.
type Kind uint8

// The kinds of frontend.
const (
	ClusterIP Kind = iota + 1
	NodePort
	ExternalIP
	LoadBalancer
)

var kinds = []string{ClusterIP: "cluster-ip", NodePort: "node-port", ExternalIP: "external-ip", LoadBalancer: "load-balancer"}

func (k Kind) String() string { return word(kinds, uint8(k), "kind") }

// A Policy says which endpoints a frontend may use: all of the cluster's, or
// those of this node.
type Policy uint8

// The policies. They are Kubernetes' internalTrafficPolicy for a ClusterIP and
// its externalTrafficPolicy for the other kinds.
const (
	Cluster Policy = iota + 1
	Local
)

var policies = []string{Cluster: "cluster", Local: "local"}

func (p Policy) String() string { return word(policies, uint8(p), "policy") }

// An Endpoint is one address that serves.
type Endpoint struct {
	Addr netip.AddrPort

	// OnNode says that the endpoint runs on this node, or may: its node is ours
	// or was not given. It may then be its own client, and such a connection
	// must be masqueraded, or its replies would never leave it.
	OnNode bool
}

// String reads as in a scenario: "10.180.0.1:8080 here".
func (e Endpoint) String() string {
	if e.OnNode {
		return e.Addr.String() + " here"
	}
	return e.Addr.String()
}

// Compare orders endpoints by address; of two that are alike, the one on this
// node goes first.
func (e Endpoint) Compare(g Endpoint) int {
	if c := e.Addr.Compare(g.Addr); c != 0 {
		return c
	}
	switch {
	case e.OnNode && !g.OnNode:
		return -1
	case g.OnNode && !e.OnNode:
		return 1
	}
	return 0
}

// ComparePrefix orders prefixes by address and length.
func ComparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}

// known reports whether words has a word for v. Zero, the value that nothing
// sets, has none.
func known(words []string, v uint8) bool { return v > 0 && int(v) < len(words) }

func word(words []string, v uint8, what string) string {
	if known(words, v) {
		return words[v]
	}
	return fmt.Sprintf("%s(%d)", what, v)
}
