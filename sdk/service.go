// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
)

// A Service is one port of one Kubernetes Service in one IP family, as this node
// must serve it. All of Kubernetes' reasoning (type, policy, topology, readiness,
// termination) is behind it: a dataplane forwards what is sent to a frontend to
// an endpoint of the list that [Service.Route] names, and need know nothing else.
//
// Services are values: code that holds one may keep it and must not write to its
// slices or its map. The host hands them out with every list in canonical order
// (see [Service.Normalize]), so two equal Services are equal field by field.
type Service struct {
	Name      Name
	Frontends []Frontend

	// Cluster are the endpoints for the Cluster policy. The host always fills
	// them, whatever the policies in use: empty means that no endpoint anywhere can
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

// Endpoints returns the list that policy p draws from.
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

// Reachable returns the endpoints that some caller may be sent to: Cluster and
// Local, in order and without repetition.
func (s Service) Reachable() []Endpoint {
	all := slices.Concat(s.Cluster, s.Local)
	slices.SortFunc(all, Endpoint.Compare)
	return slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Addr == b.Addr })
}

// MayCallItself reports whether ep may be sent what it has sent itself, and see
// itself call unless it is masqueraded: it is on this node, or it is elsewhere, counts
// as one of this node's pods all the same (where those are known by a range that holds
// all of the cluster's), and calls an external frontend with the Local policy.
func (s Service) MayCallItself(ep Endpoint) bool {
	return ep.OnNode || slices.ContainsFunc(s.Frontends, func(f Frontend) bool { return f.External() && f.Policy == Local })
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
// It sorts in place, so it is for code that makes a Service.
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
