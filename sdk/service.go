// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// A Service is one port of one Kubernetes Service in one IP family, as this node must serve it.
// The host has already evaluated everything specific to Kubernetes (type, policy, topology,
// readiness, termination). A dataplane only has to forward packets for a frontend to an
// endpoint of the list that [Service.Route] returns.
//
// Services are values: code that has one may keep it but must not modify its slices. The
// host sends them with all lists in canonical order (see [Service.Normalize]), so equal
// Services are equal field by field.
type Service struct {
	Name      Name
	Frontends []Frontend

	// Cluster are the endpoints for the Cluster policy. The host always sets them, whatever
	// policies are in use: empty means that no endpoint on any node can serve, and callers are
	// rejected.
	Cluster []Endpoint

	// Local are the endpoints for the Local policy: those on this node.
	Local []Endpoint

	// Serving are, for UDP only, further addresses that still serve, regardless of policy,
	// topology and readiness. A flow whose replies come from one of them, or from an endpoint
	// above, must not be deleted (contract line 9).
	Serving []netip.Addr

	// Affinity is how long a client keeps its endpoint after its last new connection. It
	// applies to the Service across all its frontends; zero means none.
	Affinity time.Duration

	// HealthPort is the Service's healthCheckNodePort, or zero. The host serves it; a dataplane
	// that filters packets must accept it while any Service names it.
	HealthPort uint16
}

// Endpoints returns the list for policy p.
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

// Reachable returns the endpoints to which any caller may be sent: Cluster and Local, sorted
// and without duplicates.
func (s Service) Reachable() []Endpoint {
	all := slices.Concat(s.Cluster, s.Local)
	slices.SortFunc(all, Endpoint.Compare)
	return slices.CompactFunc(all, func(a, b Endpoint) bool { return a.Addr == b.Addr })
}

// MayCallItself reports whether ep may be sent packets of its own, which must then be
// masqueraded. That is so if ep is on this node. It is also so if ep is on another node, counts
// as one of this node's pods (because pods are recognized by a range that contains all pods of
// the cluster), and calls an external frontend with the Local policy.
func (s Service) MayCallItself(ep Endpoint) bool {
	return ep.OnNode || slices.ContainsFunc(s.Frontends, func(f Frontend) bool { return f.External() && f.Policy == Local })
}

// Equal reports whether s and t are equal. Both must be in canonical order.
func (s Service) Equal(t Service) bool {
	return s.Name == t.Name &&
		s.Affinity == t.Affinity &&
		s.HealthPort == t.HealthPort &&
		slices.EqualFunc(s.Frontends, t.Frontends, Frontend.Equal) &&
		slices.Equal(s.Cluster, t.Cluster) &&
		slices.Equal(s.Local, t.Local) &&
		slices.Equal(s.Serving, t.Serving)
}

// Normalize brings the lists of s into canonical order: sorted and without duplicates. It sorts
// in place, so only the creator of a Service may call it.
func (s *Service) Normalize() {
	slices.SortFunc(s.Frontends, Frontend.Compare)
	for i := range s.Frontends {
		slices.SortFunc(s.Frontends[i].Sources, netip.Prefix.Compare)
		s.Frontends[i].Sources = slices.Compact(s.Frontends[i].Sources)
	}
	for _, list := range []*[]Endpoint{&s.Cluster, &s.Local} {
		slices.SortFunc(*list, Endpoint.Compare)
		*list = slices.CompactFunc(*list, func(a, b Endpoint) bool { return a.Addr == b.Addr })
	}
	slices.SortFunc(s.Serving, netip.Addr.Compare)
	s.Serving = slices.Compact(s.Serving)
}

// Check returns what is invalid in s: a value that this version does not know, an address of
// the other family, port zero, or a missing name. Serve checks every incoming Service, so a
// dataplane receives only valid ones.
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
