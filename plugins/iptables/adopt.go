// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/sdk"
)

// ourChains are the names that are ours, or kube-proxy's, whose place we take. A
// name that merely begins alike (KUBE-ROUTER-X) is neither. KUBE-FIREWALL and
// KUBE-MARK-DROP are not here: the kubelet shares them. Nor is what all dataplanes share
// (package masquerade).
var (
	ourChains = []string{services, nodePorts, turnedAway, denied, forward, guard, markOthers, canary}
	ourStems  = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-", "KUBE-XLB-", "KUBE-VIP-", "KUBE-NP-", "KUBE-HC-"}
)

// canary is the chain by which kube-proxy notices that somebody flushed its rules.
const canary = "KUBE-PROXY-CANARY"

func isOurs(chain string) bool {
	return slices.Contains(ourChains, chain) || slices.ContainsFunc(ourStems, func(stem string) bool { return strings.HasPrefix(chain, stem) })
}

// adopt takes what the kernel has for what we did: from now on only what differs
// is written. It reports the role that the kernel shows.
func (b *book) adopt(t iptables.Tables) sdk.Role {
	clear(b.have)
	clear(b.jumps)
	clear(b.held)
	clear(b.rules)
	for id, rules := range t {
		if isOurs(id.Chain) {
			b.hold(id, iptables.Join(rules))
			continue
		}
		for _, r := range rules {
			switch j := (iptables.Jump{At: id, Rule: r}); {
			case !isOurs(r.Target()):
			case j.Listed():
				b.jumps[j] = true
			default:
				b.held[iptables.ID{Table: id.Table, Chain: r.Target()}] = true
			}
		}
	}
	b.touchAll()
	return b.shown()
}

// touchAll has the next plan look at every chain.
func (b *book) touchAll() {
	for id := range b.have {
		b.touched[id] = true
	}
	for id := range b.should {
		b.touched[id] = true
	}
}

// shown is the role that jumps to our chains mean.
func (b *book) shown() sdk.Role {
	role := sdk.Standby
	for j := range b.jumps {
		switch {
		case j.At.Table == "nat" && j.Rule.Target() == services:
			return sdk.Active
		case j.Rule.Target() == forward:
			role = sdk.Draining
		}
	}
	return role
}

// keep finds, in what was adopted, the piece of a Service that is set aside and
// that this process has never been told: the entries that lead to its chains or
// speak of it, and all chains behind them.
func (b *book) keep(name sdk.Name) piece {
	var p piece
	for i, t := range b.trees {
		for id, text := range b.have {
			if !t.Has(id) {
				continue
			}
			for _, r := range iptables.Split(text) {
				if e, ok := entryIn(t, r, name); ok {
					p.entries = append(p.entries, entry{branch(i), e})
				}
			}
		}
	}
	for i := range p.entries {
		b.keepBehind(&p, iptables.ID{Table: b.trees[p.entries[i].in].Root().Table, Chain: p.entries[i].Rule.Target()})
	}
	return p
}

// entryIn is the entry of t that rule r is, if it is one of the Service called name.
// It is known by the chain it leads to, or by its comment.
func entryIn(t *tree.Tree, r iptables.Rule, name sdk.Name) (tree.Entry, bool) {
	about := strings.HasPrefix(r.Comment(), portName(name)+" ")
	if !about && !strings.HasSuffix(r.Target(), "-"+hash(portName(name)+name.Protocol.String())) {
		return tree.Entry{}, false
	}
	k, ok := caught(r, name.Family)
	if !ok || k.Protocol != name.Protocol {
		return tree.Entry{}, false
	}
	rest, ok := strings.CutPrefix(string(r), string(t.Words(k))+" ")
	return tree.Entry{Key: k, Rule: iptables.Rule(rest), Behind: 5, Owner: name}, ok
}

// keepBehind adds the chain id to p, and the chains that it leads to.
func (b *book) keepBehind(p *piece, id iptables.ID) {
	text, ok := b.have[id]
	if !ok || slices.Contains(ourChains, id.Chain) || slices.ContainsFunc(p.chains, func(c iptables.Chain) bool { return c.ID == id }) {
		return
	}
	p.chains = append(p.chains, iptables.Chain{ID: id, Rules: iptables.Split(text)})
	for _, r := range iptables.Split(text) {
		b.keepBehind(p, iptables.ID{Table: id.Table, Chain: r.Target()})
	}
}
