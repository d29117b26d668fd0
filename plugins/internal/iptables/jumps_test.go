// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"testing"
)

// A jump is listed by its table, its built-in chain, its target and all its matches. Every other rule is foreign,
// also if it leads to a chain of ours.
func TestListed(t *testing.T) {
	nat := func(chain string) ID { return ID{"nat", chain} }
	filter := func(chain string) ID { return ID{"filter", chain} }
	for _, j := range []Jump{
		{nat("PREROUTING"), `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{filter("FORWARD"), `-m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{filter("FORWARD"), `-m comment --comment "kubernetes service portals" -m conntrack --ctstate NEW -j KUBE-SERVICES`},
		{filter("OUTPUT"), "-m conntrack --ctstate NEW -m mark ! --mark 0x4000/0x4000 -j KUBE-PORTALS-DENY"},
		{nat("OUTPUT"), "-m mark ! --mark 0x1/0x1 -j KUBE-PORTALS-HOST"},
		{filter("INPUT"), "-j KUBE-FIREWALL"},
	} {
		if !j.Listed() {
			t.Errorf("%s: %s is not listed", j.At, j.Rule)
		}
	}
	for _, j := range []Jump{
		{nat("CNI-HOSTPORT-SETMARK"), `-m comment --comment "CNI portfwd masquerade mark" -j KUBE-MARK-MASQ`},
		{nat("PREROUTING"), "-j KUBE-MARK-MASQ"},
		{nat("PREROUTING"), "-j KUBE-SERVICES"},
		{nat("PREROUTING"), `-m comment --comment "kubernetes service portals" -g KUBE-SERVICES`},
		{nat("INPUT"), `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{nat("PREROUTING"), `-s 10.0.0.0/8 -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{nat("PREROUTING"), `-p tcp -m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{nat("PREROUTING"), `-m comment --comment "kubernetes service portals" -m mark --mark 0x1 -j KUBE-SERVICES`},
		{filter("PREROUTING"), `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES`},
		{nat("PREROUTING"), `-m comment --comment "-j KUBE-SERVICES" -j ACCEPT`},
		{nat("OUTPUT"), "-m mark ! --mark 0x3/0x3 -j KUBE-PORTALS-HOST"},
		{nat("OUTPUT"), "-m mark --mark 0x1/0x1 -j KUBE-PORTALS-HOST"},
		{filter("DOCKER-USER"), `-m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`},
		{nat("PREROUTING"), ""},
		{nat("PREROUTING"), "-j"},
		{nat("PREROUTING"), `-m comment --comment`},
		{nat("PREROUTING"), `-m comment --comment "kubernetes service portals" -j KUBE-SERVICES extra`},
	} {
		if j.Listed() {
			t.Errorf("%s: %s is listed", j.At, j.Rule)
		}
	}
}

// Held returns the chains of ours to which foreign rules lead, and from which chain.
func TestHeld(t *testing.T) {
	id := func(chain string) ID { return ID{"filter", chain} }
	tables := Tables{
		id("KUBE-FORWARD"): {"-j ACCEPT"},
		id("KUBE-OTHER"):   {"-j KUBE-FORWARD"}, // also ours: it is removed together with the chain that it jumps to
		id("KUBE-FREE"):    nil,
		id("FORWARD"):      {`-m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD`, "-j DOCKER-USER"},
		id("DOCKER-USER"):  {"-i eth0 -j KUBE-FORWARD"},
		id("Z"):            {"-j KUBE-FORWARD"},
	}
	ours := func(id ID) bool { return len(id.Chain) > 5 && id.Chain[:5] == "KUBE-" }
	want := map[ID]ID{id("KUBE-FORWARD"): id("DOCKER-USER")}
	if got := tables.Held(ours); !maps.Equal(got, want) {
		t.Errorf("held chains are %v, want %v", got, want)
	}
}
