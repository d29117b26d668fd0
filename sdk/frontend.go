// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A Frontend is one address that callers send to.
type Frontend struct {
	Kind Kind

	// Addr is the address and port. An unspecified IP (0.0.0.0 or ::) stands for all addresses
	// of the node that accept node ports; a frontend with a specific address and the same port
	// takes precedence.
	Addr netip.AddrPort

	Policy Policy

	// Sources are the ranges that callers must be in; empty means any caller. If a range
	// contains an address of the node, the host has added the frontend's own address, because
	// the node may connect to itself by that.
	Sources []netip.Prefix
}

// External reports whether f is of any kind but ClusterIP: callers outside the cluster can use
// it. It is external for callers inside the cluster, too.
func (f Frontend) External() bool { return f.Kind != ClusterIP }

// Allows reports whether a caller with address addr may use f.
func (f Frontend) Allows(addr netip.Addr) bool {
	return len(f.Sources) == 0 ||
		slices.ContainsFunc(f.Sources, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// String returns a form such as "node-port *:30080 local", as in scenario files.
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

// Equal reports whether f and g are equal. Both must be in canonical order.
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

// A Kind is one of the four kinds of frontend that Kubernetes has.
type Kind uint8

// Values of Kind.
const (
	ClusterIP Kind = iota + 1
	NodePort
	ExternalIP
	LoadBalancer
)

var kinds = []string{ClusterIP: "cluster-ip", NodePort: "node-port", ExternalIP: "external-ip", LoadBalancer: "load-balancer"}

func (k Kind) String() string { return word(kinds, uint8(k), "kind") }

// A Policy says which endpoints a frontend may use: those of all nodes, or those of this node.
type Policy uint8

// Values of Policy. They correspond to Kubernetes' internalTrafficPolicy for a ClusterIP, and
// to its externalTrafficPolicy for the other kinds.
const (
	Cluster Policy = iota + 1
	Local
)

var policies = []string{Cluster: "cluster", Local: "local"}

func (p Policy) String() string { return word(policies, uint8(p), "policy") }
