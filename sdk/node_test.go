// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"net/netip"
	"testing"
)

func prefixes(list ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, p := range list {
		all = append(all, netip.MustParsePrefix(p))
	}
	return all
}

func TestTakesNodePorts(t *testing.T) {
	n := Node{NodePorts: prefixes("192.0.2.0/28", "2001:db8::10/128")}
	for addr, want := range map[string]bool{
		"192.0.2.10": true, "192.0.2.16": false, "2001:db8::10": true, "2001:db8::11": false, "127.0.0.1": false,
	} {
		if got := n.TakesNodePorts(netip.MustParseAddr(addr)); got != want {
			t.Errorf("%s: %t", addr, got)
		}
	}
	if (Node{}).TakesNodePorts(netip.MustParseAddr("192.0.2.10")) {
		t.Error("a node without ranges takes node ports")
	}
}

func TestPods(t *testing.T) {
	cidrs := Pods{CIDRs: prefixes("10.180.0.0/24")}
	both := Pods{CIDRs: prefixes("10.180.0.0/24", "fd00:10:180::/64")}
	bridge, veth := Pods{Bridge: "cni0"}, Pods{InterfacePrefix: "cali"}
	for _, c := range []struct {
		name          string
		pods          Pods
		known, known6 bool
		addr, iface   string
		contains      bool
	}{
		{"unknown", Pods{}, false, false, "10.180.0.1", "cali1", false},
		{"by range", cidrs, true, false, "10.180.0.1", "", true},
		{"by range, another node's", cidrs, true, false, "10.180.1.1", "", false},
		{"by ranges of both families", both, true, true, "fd00:10:180::7", "", true},
		{"by bridge", bridge, true, true, "203.0.113.1", "cni0", true},
		{"by bridge, whatever the address", bridge, true, true, "10.180.0.1", "eth0", false},
		{"by bridge, with a longer name", bridge, true, true, "10.180.0.1", "cni01", false},
		{"by bridge, the interface is not known", bridge, true, true, "10.180.0.1", "", false},
		{"by interface", veth, true, true, "203.0.113.1", "cali9a", true},
		{"by interface, another", veth, true, true, "10.180.0.1", "eth0", false},
	} {
		if c.pods.Known(IPv4) != c.known || c.pods.Known(IPv6) != c.known6 {
			t.Errorf("%s: known %t %t", c.name, c.pods.Known(IPv4), c.pods.Known(IPv6))
		}
		if got := c.pods.Contains(netip.MustParseAddr(c.addr), c.iface); got != c.contains {
			t.Errorf("%s: contains %s on %q: %t", c.name, c.addr, c.iface, got)
		}
	}
}

// TestNodeEqual changes each field alone: Equal compares all of them.
func TestNodeEqual(t *testing.T) {
	whole := func() Node {
		return Node{
			Name: "n1", Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.10")}, NodePorts: prefixes("0.0.0.0/0"),
			Pods: Pods{CIDRs: prefixes("10.180.0.0/24")}, ServiceCIDRs: prefixes("172.30.0.0/16"),
		}
	}
	if !whole().Equal(whole()) || !(Node{}).Equal(Node{NodePorts: []netip.Prefix{}}) {
		t.Error("a node does not equal itself")
	}
	other(t, whole(), Node.Equal, map[string]func(*Node){
		"Name":          func(n *Node) { n.Name = "n2" },
		"Addrs":         func(n *Node) { n.Addrs = nil },
		"NodePorts":     func(n *Node) { n.NodePorts = prefixes("::/0") },
		"Pods":          func(n *Node) { n.Pods.Bridge = "cni0" },
		"PodCIDRs":      func(n *Node) { n.PodCIDRs = prefixes("10.180.0.0/24") },
		"MasqueradeAll": func(n *Node) { n.MasqueradeAll = true },
		"MasqueradeBit": func(n *Node) { n.MasqueradeBit = 14 },
		"ServiceCIDRs":  func(n *Node) { n.ServiceCIDRs = append(n.ServiceCIDRs, prefixes("fd00::/112")...) },
		"Conntrack":     func(n *Node) { n.Conntrack.TCPBeLiberal = true },
	})
	other(t, Pods{}, Pods.Equal, map[string]func(*Pods){
		"CIDRs":           func(p *Pods) { p.CIDRs = prefixes("10.0.0.0/8") },
		"Bridge":          func(p *Pods) { p.Bridge = "cni0" },
		"InterfacePrefix": func(p *Pods) { p.InterfacePrefix = "cali" },
	})
}
