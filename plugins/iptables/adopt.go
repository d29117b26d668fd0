// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// ourChains are the names that are ours, or kube-proxy's, whose place we take. A
// name that merely begins alike (KUBE-ROUTER-X) is neither. KUBE-FIREWALL and
// KUBE-MARK-DROP are not here: the kubelet shares them. Nor is what all dataplanes share
// (package masquerade).
var (
	ourChains = []string{services, nodePorts, turnedAway, denied, forward, guard, looped, markOthers, canary}
	ourStems  = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-", "KUBE-VIP-", "KUBE-NP-", "KUBE-HC-", "KUBE-LP-"}
)

// canary is the chain by which kube-proxy notices that its rules were flushed.
const canary = "KUBE-PROXY-CANARY"

func isOurs(id iptables.ID) bool {
	return slices.Contains(ourChains, id.Chain) || slices.ContainsFunc(ourStems, func(stem string) bool { return strings.HasPrefix(id.Chain, stem) })
}

// shown is the role that jumps to our chains mean.
func (s *familyRules) shown() sdk.Role {
	role := sdk.Standby
	for j := range s.Standing() {
		switch {
		case j.At.Table == "nat" && j.Rule.Target() == services:
			return sdk.Active
		case j.Rule.Target() == forward:
			role = sdk.Draining
		}
	}
	return role
}

// keep finds, in what was adopted, what a former process serves a Service by that is refused now:
// the entries that lead to its chains or speak of it, and all chains behind them.
func (s *familyRules) keep(name sdk.Name) ruleset.Desired {
	var d ruleset.Desired
	for i, t := range s.Trees() {
		for id, text := range s.ObservedAll() {
			if !t.Has(id) {
				continue
			}
			for _, r := range iptables.Split(text) {
				if e, ok := entryIn(t.Tree, r, name); ok {
					d.Entries = append(d.Entries, ruleset.Entry{In: i, Entry: e})
				}
			}
		}
	}
	fixed := func(id iptables.ID) bool { return slices.Contains(ourChains, id.Chain) }
	for _, e := range d.Entries {
		d.Chains = s.Behind(d.Chains, iptables.ID{Table: s.Tree(e.In).Root().Table, Chain: e.Rule.Target()}, fixed)
	}
	return d
}

// entryIn is the entry of t that rule r is, if it is one of the Service called name.
// It is known by the chain it leads to, or by its comment.
func entryIn(t *tree.Tree, r iptables.Rule, name sdk.Name) (tree.Entry, bool) {
	about := strings.HasPrefix(r.Comment(), iptables.Label(name)+" ")
	if !about && !strings.HasSuffix(r.Target(), "-"+iptables.Hash(iptables.Label(name)+name.Protocol.String())) {
		return tree.Entry{}, false
	}
	k, ok := caught(r, name.Family)
	if !ok || k.Protocol != name.Protocol {
		return tree.Entry{}, false
	}
	rest, ok := strings.CutPrefix(string(r), string(t.Words(k))+" ")
	return tree.Entry{Key: k, Rule: iptables.Rule(rest), Behind: 5, Owner: name}, ok
}
