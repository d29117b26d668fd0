// SPDX-License-Identifier: Apache-2.0

// Package iptables serves Services with the kernel's packet filter. A packet's way
// through what it programs:
//
//	nat PREROUTING, OUTPUT ─▶ KUBE-SERVICES ─▶ tree by address, protocol, port ─┐
//	                                └─ to the node ─▶ KUBE-NODEPORTS ─ tree ────┤
//	        ┌───────────────────────────────────────────────────────────────────┘
//	        ├─▶ KUBE-FW-   only these sources ─┐
//	        ├─▶ KUBE-EXT-  from outside ◀──────┘ marks, or keeps the caller's address
//	        │      ├─▶ KUBE-SVL-  endpoints of this node ─┐
//	        └──────┴─▶ KUBE-SVC-  all endpoints ──────────┴─▶ DNAT
//	                                 └─▶ KUBE-SEP-  one that may call itself, or sticks
//
//	filter INPUT, FORWARD, OUTPUT ─▶ KUBE-SERVICES ─▶ the same trees, of those that none
//	                                                  may answer: REJECT or DROP, in a chain for each reason
//
// The names are kube-proxy's, so people that know those rules find the way, and so a
// running kube-proxy's rules are taken over chain by chain. Its one long list is a
// tree here: each step halves what is left twice, and a packet to no Service of
// ours leaves after a handful of rules.
package iptables

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// The chains that are there whatever Services there are.
const (
	services   = "KUBE-SERVICES"          // both tables: the way in
	nodePorts  = "KUBE-NODEPORTS"         // nat: to a port of the node; filter: health-check ports
	turnedAway = "KUBE-EXTERNAL-SERVICES" // filter: node ports that no endpoint may answer
	denied     = "KUBE-PROXY-FIREWALL"    // filter: the source is not allowed
	noneLocal  = "KUBE-NO-LOCAL-ENDPOINT" // filter: no endpoint is on this node, and the policy is Local
	unserved   = "KUBE-NO-ENDPOINT"       // filter: no endpoint is anywhere
	foreign    = "KUBE-FOREIGN-PORT"      // filter: no Service has the port
	forward    = "KUBE-FORWARD"           // filter: what is on its way stays on its way
	looped     = "KUBE-LOOPED"            // filter: what comes back from where it was sent on
	guard      = "KUBE-LOCALNET-GUARD"    // filter: nothing from outside reaches 127.0.0.0/8
	markMasq   = masquerade.Mark          // nat: have it masqueraded; all dataplanes share it
	markOthers = "KUBE-MARK-NOT-POD"      // nat: mark it unless a pod of the cluster sent it
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }

func clusterChain(n sdk.Name) string {
	return "KUBE-SVC-" + iptables.Hash(iptables.Label(n)+n.Protocol.String())
}
func localChain(n sdk.Name) string {
	return "KUBE-SVL-" + iptables.Hash(iptables.Label(n)+n.Protocol.String())
}
func externalChain(n sdk.Name) string {
	return "KUBE-EXT-" + iptables.Hash(iptables.Label(n)+n.Protocol.String())
}

func endpointChain(n sdk.Name, ep netip.AddrPort) string {
	return "KUBE-SEP-" + iptables.Hash(iptables.Label(n)+n.Protocol.String()+ep.String())
}

// sourcesChain lets in only some sources of f. The chain of a Service's first load balancer's address has
// kube-proxy's name.
func sourcesChain(svc sdk.Service, f sdk.Frontend) string {
	text := iptables.Label(svc.Name) + svc.Name.Protocol.String()
	for _, other := range svc.Frontends {
		if len(other.Sources) == 0 || other.Kind == sdk.NodePort {
			continue
		}
		if other.Addr != f.Addr || other.Kind != f.Kind {
			text += f.Kind.String() + f.Addr.String()
		}
		break
	}
	return "KUBE-FW-" + iptables.Hash(text)
}

// partChain is one of the parts that a long list of endpoints is divided into.
func partChain(chain string, i int) string {
	n := strconv.FormatInt(int64(i), 36)
	return chain + "000"[min(len(n), 3):] + n
}

// stickyPart is the chain that sends callers back to the endpoints of a part. Those of
// partChain have no capital letters.
func stickyPart(chain string, i int) string {
	n := strings.ToUpper(strconv.FormatInt(int64(i), 36))
	return chain + "S0"[:max(0, 3-len(n))] + n
}

// The trees of one family, by their indexes.
const (
	servedAddrs   = iota // nat: Services by their own addresses
	servedPorts          // nat: node ports
	unservedAddrs        // filter: the same two, of what is rejected or dropped
	unservedPorts
	healthPorts // filter: health-check ports, which a strict INPUT must let in
	loopedAddrs // filter: external addresses, whatever the port
)

// servedTree is where f is caught when some endpoint may answer.
func servedTree(f sdk.Frontend) int {
	if f.Addr.Addr().IsUnspecified() {
		return servedPorts
	}
	return servedAddrs
}

// unservedTree is where f is caught when none may.
func unservedTree(f sdk.Frontend) int { return servedTree(f) + unservedAddrs }

// ruleConfig says what is particular to this dataplane's rules in one family.
func ruleConfig(family sdk.Family) rules.Config {
	return rules.Config{
		Trees: []rules.Tree{
			servedAddrs:   {Tree: tree.ByAddress(nat(services), "KUBE-VIP-", family, 1)},
			servedPorts:   {Tree: tree.ByPort(nat(nodePorts), "KUBE-NP-", 2)},
			unservedAddrs: {Tree: tree.ByAddress(filter(services), "KUBE-VIP-", family, 1)},
			unservedPorts: {Tree: tree.ByPort(filter(turnedAway), "KUBE-NP-", 2)},
			healthPorts:   {Tree: tree.ByPort(filter(nodePorts), "KUBE-HC-", 1), Shared: true},
			loopedAddrs:   {Tree: tree.ByAddress(filter(looped), "KUBE-LP-", family, 2), Shared: true, Whole: true},
		},
		IsOurs:     isOurs,
		IsFixed:    isFixed,
		Role:       shownRole,
		Owner:      func(e rules.Entry, textOf func(iptables.ID) string) (sdk.Name, bool) { return owner(family, e, textOf) },
		Rank:       rank,
		Companions: map[iptables.ID]iptables.ID{nat(canary): {Table: "mangle", Chain: canary}}, // kube-proxy has one in each table
	}
}

// rank orders chains so that each has a higher rank than those that it leads to. A chain of
// a tree has its level below the root, and the root none.
func rank(c iptables.Chain) int {
	name := c.ID.Chain
	isPart := len(name) == len("KUBE-SVC-")+16+3
	switch stem := name[:min(len(name), 9)]; {
	case stem == "KUBE-SEP-", reasons[name] != "", name == markOthers:
		return 1
	case (stem == "KUBE-SVC-" || stem == "KUBE-SVL-") && isPart:
		return 2
	case stem == "KUBE-SVC-", stem == "KUBE-SVL-":
		return 3
	case stem == "KUBE-EXT-":
		return 4
	case strings.HasPrefix(stem, "KUBE-FW-"):
		return 5
	case name == services:
		return 8 + tree.Deepest
	case name == nodePorts, name == turnedAway, name == looped:
		return 7 + tree.Deepest
	case c.Level > 0:
		return 6 + tree.Deepest - c.Level
	}
	return 0
}

// isList reports whether a chain chooses among all endpoints of a Service, by their parts where
// there are many.
func isList(id iptables.ID) bool { return rank(iptables.Chain{ID: id}) == 3 }
