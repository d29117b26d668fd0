// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// The trees of one family, by their indexes.
const (
	servedAddrs   = iota // nat: Services by their own addresses
	servedPorts          // nat: node ports
	unservedAddrs        // filter: the same two, of what is rejected or dropped
	unservedPorts
	healthPorts // filter: health-check ports, which a strict INPUT must let in
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
func ruleConfig(family sdk.Family) ruleset.Config[sdk.Name] {
	return ruleset.Config[sdk.Name]{
		Family: family,
		Trees: []ruleset.Tree{
			servedAddrs:   {Tree: tree.ByAddress(nat(services), "KUBE-VIP-", family, 1)},
			servedPorts:   {Tree: tree.ByPort(nat(nodePorts), "KUBE-NP-", 2)},
			unservedAddrs: {Tree: tree.ByAddress(filter(services), "KUBE-VIP-", family, 1)},
			unservedPorts: {Tree: tree.ByPort(filter(turnedAway), "KUBE-NP-", 2)},
			healthPorts:   {Tree: tree.ByPort(filter(nodePorts), "KUBE-HC-", 1), Shared: true},
		},
		Ours:       isOurs,
		Rank:       rank,
		Spare:      isSpare,
		Companions: map[iptables.ID]iptables.ID{nat(canary): {Table: "mangle", Chain: canary}}, // kube-proxy has one in each table
	}
}

// rank orders chains so that each has a higher rank than those that it leads to. A chain of
// a tree has its level below the root, and the root none.
func rank(c iptables.Chain) int {
	name := c.ID.Chain
	isPart := len(name) == len("KUBE-SVC-")+16+3
	switch stem := name[:min(len(name), 9)]; {
	case stem == "KUBE-SEP-":
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
	case name == nodePorts, name == turnedAway:
		return 7 + tree.Deepest
	case c.Level > 0:
		return 6 + tree.Deepest - c.Level
	}
	return 0
}

// isSpare reports whether a chain is an endpoint's, or a part of a list: nothing leads there
// once the chain of its Service is gone.
func isSpare(id iptables.ID) bool {
	r := rank(iptables.Chain{ID: id})
	return r == 1 || r == 2
}
