// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"iter"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

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
func (o Outcome) Equal(p Outcome) bool {
	return o.Unserved == p.Unserved && o.Verdict == p.Verdict && o.Masquerade == p.Masquerade &&
		slices.Equal(o.Endpoints, p.Endpoints) && slices.Equal(o.Hairpin, p.Hairpin)
}

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
	return outcome(svc.Route(f, from, node), from)
}

// Find returns the frontend that a packet to an address is for. One that names the
// address takes precedence over one that stands for all that take node ports.
func Find(services iter.Seq[sdk.Service], node sdk.Node, to netip.AddrPort, protocol sdk.Protocol) (sdk.Service, sdk.Frontend, bool) {
	every := netip.AddrPortFrom(unspecified(to.Addr()), to.Port())
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

func unspecified(like netip.Addr) netip.Addr {
	if like.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

func outcome(r sdk.Route, from sdk.Caller) Outcome {
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
