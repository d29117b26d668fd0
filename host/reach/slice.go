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
	refused := 0
	for i := range slice.Endpoints {
		reason, why := s.readEndpoint(&slice.Endpoints[i], loopback)
		if why == "" {
			continue
		}
		if refused++; refused == 1 { // one problem, even of a thousand invalid endpoints
			text := slice.Endpoints[i].Addresses[0]
			if !printable(text) {
				text = strconv.Quote(text)
			}
			s.problem(reason, "endpoint %s %s; it is not used", text, why)
		}
	}
	if refused > 1 {
		s.Problems[len(s.Problems)-1].Message += fmt.Sprintf(", nor are %d other endpoints", refused-1)
	}
}

// readEndpoint reads only the first address of an endpoint. The API defines further addresses
// as equivalent, and consumers should use the first. It returns why the endpoint is not used.
func (s *Slice) readEndpoint(ep *discoveryv1.Endpoint, loopback bool) (reason, why string) {
	if len(ep.Addresses) == 0 {
		return "", ""
	}
	addr, ok := parseAddr(ep.Addresses[0])
	if !ok {
		return InvalidAddress, "is no IP address"
	}
	if why := unusableRemote(addr, loopback); why != "" {
		return InvalidAddress, why
	}
	if sdk.FamilyOf(addr) != s.Family {
		return IncorrectIPVersion, "is of the other IP family"
	}
	s.Endpoints = append(s.Endpoints, Endpoint{Addr: addr, Place: placeOf(ep), State: stateOf(&ep.Conditions)})
	return "", ""
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
