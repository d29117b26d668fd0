// SPDX-License-Identifier: Apache-2.0

// Package iptables serves Services with rules of iptables. A packet takes this path:
//
//	nat PREROUTING, OUTPUT ─▶ KUBE-SERVICES ─▶ tree by address, protocol, port ─┐
//	                                └─ to the node ─▶ KUBE-NODEPORTS ─ tree ────┤
//	        ┌───────────────────────────────────────────────────────────────────┘
//	        ├─▶ KUBE-FW-   only allowed sources ─┐
//	        ├─▶ KUBE-EXT-  from outside ◀────────┘ marks for masquerading, or keeps the client's address
//	        │      ├─▶ KUBE-SVL-  endpoints on this node ─┐
//	        └──────┴─▶ KUBE-SVC-  all endpoints ──────────┴─▶ DNAT
//	                                 └─▶ KUBE-SEP-  endpoint with hairpin traffic or affinity
//
//	filter INPUT, FORWARD, OUTPUT ─▶ KUBE-SERVICES ─▶ trees of the same shape, for frontends without an
//	                                                  endpoint: a chain for each reason to REJECT or DROP
//
// The chains have kube-proxy's names, so that its users recognize them, and so that this package can take over
// the rules of a running kube-proxy chain by chain. Where kube-proxy has one long list of Services, this
// package has a tree: each level decides two bits of the key, so a packet that belongs to no Service leaves
// after a few rules.
//
// The package never changes the rules of programs other than kube-proxy, whose place it takes.
//
// Start reading at want in want.go, which maps a Service to rules. Package rules compares these with the kernel
// and writes the difference.
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

// Chains that exist independently of Services.
const (
	services         = "KUBE-SERVICES"          // both tables: the root of the tree by address
	nodePorts        = "KUBE-NODEPORTS"         // nat: to a port of the node; filter: health-check ports
	externalServices = "KUBE-EXTERNAL-SERVICES" // filter: node ports without an endpoint
	denied           = "KUBE-PROXY-FIREWALL"    // filter: drops packets whose source is not allowed
	noLocalEndpoint  = "KUBE-NO-LOCAL-ENDPOINT" // filter: drops packets if the policy is Local and this node has no endpoint
	noEndpoint       = "KUBE-NO-ENDPOINT"       // filter: rejects packets if the Service has no endpoints
	foreignPort      = "KUBE-FOREIGN-PORT"      // filter: drops packets to a port that no Service has
	forward          = "KUBE-FORWARD"           // filter: accepts marked packets and those of established connections
	looped           = "KUBE-LOOPED"            // filter: drops packets that would leave by the uplink on which they arrived
	localnetGuard    = "KUBE-LOCALNET-GUARD"    // filter: drops packets from outside to 127.0.0.0/8
	markMasq         = masquerade.Mark          // nat: marks packets for masquerading; shared by all dataplanes
	markNotPod       = "KUBE-MARK-NOT-POD"      // nat: marks packets unless a pod of the cluster sent them
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

// sourcesChain returns the name of the chain that checks the sources of f. For the first load balancer address
// of a Service it is kube-proxy's name.
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

// partChain returns the name of the chain for part i of a long endpoint list.
func partChain(chain string, i int) string {
	n := strconv.FormatInt(int64(i), 36)
	return chain + "000"[min(len(n), 3):] + n
}

// affinityPartChain returns the name of the chain that holds the affinity rules of part i. It has capital
// letters where partChain has lower-case ones, so the names never collide.
func affinityPartChain(chain string, i int) string {
	n := strings.ToUpper(strconv.FormatInt(int64(i), 36))
	return chain + "S0"[:max(0, 3-len(n))] + n
}

// Indexes of the trees of one family.
const (
	servedAddrs   = iota // nat: frontends by address
	servedPorts          // nat: node ports
	unservedAddrs        // filter: frontends to reject or drop, by address
	unservedPorts        // filter: the same for node ports
	healthPorts          // filter: health-check ports, accepted in case INPUT has policy DROP
	loopedAddrs          // filter: external addresses, whatever the port
)

// servedTree returns the nat tree in which f has its entry.
func servedTree(f sdk.Frontend) int {
	if f.Addr.Addr().IsUnspecified() {
		return servedPorts
	}
	return servedAddrs
}

// unservedTree returns the filter tree in which f has its entry if its packets are rejected or dropped.
func unservedTree(f sdk.Frontend) int { return servedTree(f) + unservedAddrs }

// ruleConfig returns the configuration of package rules for this mode in one family.
func ruleConfig(family sdk.Family) rules.Config {
	return rules.Config{
		Trees: []rules.Tree{
			servedAddrs:   {Tree: tree.ByAddress(nat(services), "KUBE-VIP-", family, 1)},
			servedPorts:   {Tree: tree.ByPort(nat(nodePorts), "KUBE-NP-", 2)},
			unservedAddrs: {Tree: tree.ByAddress(filter(services), "KUBE-VIP-", family, 1)},
			unservedPorts: {Tree: tree.ByPort(filter(externalServices), "KUBE-NP-", 2)},
			healthPorts:   {Tree: tree.ByPort(filter(nodePorts), "KUBE-HC-", 1), Shared: true},
			loopedAddrs:   {Tree: tree.ByAddress(filter(looped), "KUBE-LP-", family, 2), Shared: true, Whole: true},
		},
		IsOurs:     isOurs,
		IsFixed:    isFixed,
		Role:       shownRole,
		Owner:      func(e rules.Entry, textOf func(iptables.ID) string) (sdk.Name, bool) { return owner(family, e, textOf) },
		Rank:       rank,
		Companions: map[iptables.ID]iptables.ID{nat(canary): {Table: "mangle", Chain: canary}}, // kube-proxy creates a canary in each table
	}
}

// rank returns a higher number for a chain than for all chains that its rules lead to. A chain of a tree has a
// Level, its distance from the root; a root has level 0 and is ranked by name.
func rank(c iptables.Chain) int {
	name := c.ID.Chain
	isPart := len(name) == len("KUBE-SVC-")+16+3
	switch stem := name[:min(len(name), 9)]; {
	case stem == "KUBE-SEP-", reasons[name] != "", name == markNotPod:
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
	case name == nodePorts, name == externalServices, name == looped:
		return 7 + tree.Deepest
	case c.Level > 0:
		return 6 + tree.Deepest - c.Level
	}
	return 0
}

// isList reports whether a chain chooses among all endpoints of a Service. A long list is split into parts
// below it.
func isList(id iptables.ID) bool { return rank(iptables.Chain{ID: id}) == 3 }
