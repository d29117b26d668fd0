// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unique"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/pointsman/pointsman/sdk"
)

// A Slice holds the fields of an EndpointSlice that we use. Every endpoint has every port.
type Slice struct {
	Family    sdk.Family // zero for address types that are not served, such as FQDN
	Ports     []Port     // NodePort is not used
	Endpoints []Endpoint
	Problems  []Problem
}

// An Endpoint is one address of a slice.
type Endpoint struct {
	Addr  netip.Addr
	Place unique.Handle[Place] // interned, because many endpoints share few places
	State State
}

// A Place is the location of an endpoint and its topology hints. Hints are names joined by
// commas; names of nodes and zones contain no commas.
type Place struct {
	Node      string // empty if not known
	Zone      string // empty if not known; no decision depends on it
	NodeHints string
	ZoneHints string
}

// State is an endpoint's conditions.
type State uint8

// Bits of State.
const (
	Ready State = 1 << iota
	Serving
	Terminating
)

// Read fills s from slice, and reuses the memory of its Ports and Endpoints. loopback: see
// ThisNode.Loopback.
func (s *Slice) Read(slice *discoveryv1.EndpointSlice, loopback bool) {
	*s = Slice{Ports: s.Ports[:0], Endpoints: s.Endpoints[:0]}
	switch slice.AddressType {
	case discoveryv1.AddressTypeIPv4:
		s.Family = sdk.IPv4
	case discoveryv1.AddressTypeIPv6:
		s.Family = sdk.IPv6
	default:
		s.problem(UnknownValue, "address type %q is not served, only IPv4 and IPv6 are", slice.AddressType)
		return
	}
	for i := range slice.Ports {
		p := &slice.Ports[i]
		s.Ports = addPort(s.Ports, Port{Name: ptr.Deref(p.Name, ""), Number: port(ptr.Deref(p.Port, 0))}, ptr.Deref(p.Protocol, ""), s.problem)
	}
	var refused refusals
	for i := range slice.Endpoints {
		s.readEndpoint(&slice.Endpoints[i], loopback, &refused)
	}
	s.Problems = append(s.Problems, refused.problems()...)
}

// readEndpoint reads only the first address of an endpoint. The API defines further addresses
// as equivalent, and consumers should use the first.
func (s *Slice) readEndpoint(ep *discoveryv1.Endpoint, loopback bool, refused *refusals) {
	if len(ep.Addresses) == 0 {
		return
	}
	text := ep.Addresses[0]
	addr, ok := parseAddr(text)
	if !ok {
		refused.add(InvalidAddress, "is no IP address", text)
		return
	}
	if why := unusableRemote(addr, loopback); why != "" {
		refused.add(InvalidAddress, why, text)
		return
	}
	if sdk.FamilyOf(addr) != s.Family {
		refused.add(IncorrectIPVersion, "is of the other IP family", text)
		return
	}
	s.Endpoints = append(s.Endpoints, Endpoint{Addr: addr, Place: placeOf(ep), State: stateOf(&ep.Conditions)})
}

func placeOf(ep *discoveryv1.Endpoint) unique.Handle[Place] {
	p := Place{Node: ptr.Deref(ep.NodeName, ""), Zone: ptr.Deref(ep.Zone, "")}
	if ep.Hints != nil {
		p.NodeHints = join(ep.Hints.ForNodes, func(n discoveryv1.ForNode) string { return n.Name })
		p.ZoneHints = join(ep.Hints.ForZones, func(z discoveryv1.ForZone) string { return z.Name })
	}
	if !printable(p.Node) || !printable(p.Zone) || !printable(p.NodeHints) || !printable(p.ZoneHints) {
		p = Place{} // not the name of any Node or zone
	}
	return unique.Make(p)
}

// join joins the names with commas. It does not allocate for a single name, by far the most
// frequent case.
func join[T any](list []T, name func(T) string) string {
	if len(list) == 1 {
		return name(list[0])
	}
	names := make([]string, 0, len(list))
	for _, item := range list {
		names = append(names, name(item))
	}
	return strings.Join(names, ",")
}

// stateOf returns the conditions, with the API's defaults for those that are not set: ready,
// serving, not terminating.
func stateOf(c *discoveryv1.EndpointConditions) State {
	var s State
	if ptr.Deref(c.Ready, true) {
		s |= Ready
	}
	if ptr.Deref(c.Serving, true) {
		s |= Serving
	}
	if ptr.Deref(c.Terminating, false) {
		s |= Terminating
	}
	return s
}

func (s *Slice) problem(reason, format string, args ...any) {
	s.Problems = append(s.Problems, Problem{reason, fmt.Sprintf(format, args...)})
}

// Equal reports whether s and t have the same effect.
func (s *Slice) Equal(t *Slice) bool {
	return s.Family == t.Family &&
		slices.Equal(s.Ports, t.Ports) &&
		slices.Equal(s.Endpoints, t.Endpoints) &&
		slices.Equal(s.Problems, t.Problems)
}

// Clone returns a copy that later calls of s.Read do not modify.
func (s *Slice) Clone() Slice {
	c := *s
	c.Ports = slices.Clone(s.Ports)
	c.Endpoints = slices.Clone(s.Endpoints)
	return c
}

// refusals are grouped by cause, so that a slice with a thousand invalid endpoints produces one
// problem.
type refusals []refusal

type refusal struct {
	reason, why, first string
	count              int
}

func (r *refusals) add(reason, why, addr string) {
	if !printable(addr) {
		addr = strconv.Quote(addr)
	}
	for i := range *r {
		if (*r)[i].why == why {
			(*r)[i].count++
			return
		}
	}
	*r = append(*r, refusal{reason, why, addr, 1})
}

func (r refusals) problems() []Problem {
	var all []Problem
	for _, f := range r {
		message := fmt.Sprintf("endpoint %s %s; it is not used", f.first, f.why)
		if f.count > 1 {
			message += fmt.Sprintf(", nor are %d more like it", f.count-1)
		}
		all = append(all, Problem{f.reason, message})
	}
	return all
}
