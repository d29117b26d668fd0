// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"math/bits"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// jumpLines are the rules at built-in chains by which our dataplanes, and all versions of kube-proxy, jump to
// their chains: table, chains, and the rule as iptables-save prints it. A rule that is not listed here is
// foreign wherever it leads, and is never deleted.
const jumpLines = `
nat PREROUTING,OUTPUT          -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
nat POSTROUTING                -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
filter INPUT,FORWARD,OUTPUT    -m conntrack --ctstate NEW -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
filter INPUT                   -m comment --comment "kubernetes health check service ports" -j KUBE-NODEPORTS
filter FORWARD                 -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
filter INPUT,OUTPUT            -j KUBE-LOCALNET-GUARD
filter FORWARD                 -j KUBE-NFT-FORWARD

nat POSTROUTING                -j KUBE-IPVS-POSTROUTING
nat PREROUTING,OUTPUT          -j KUBE-IPVS-SERVICES
mangle PREROUTING,OUTPUT       -m conntrack --ctstate NEW -j KUBE-IPVS-DROP
mangle INPUT,OUTPUT            -m conntrack --ctstate NEW -j KUBE-IPVS-NEAR
filter FORWARD                 -j KUBE-IPVS-FORWARD
filter INPUT                   -j KUBE-IPVS-HEALTH
filter INPUT                   -j KUBE-IPVS-GUARD

nat PREROUTING                 -j KUBE-PORTALS-CONTAINER
nat OUTPUT                     -m mark ! --mark BIT -j KUBE-PORTALS-HOST
filter INPUT                   -m conntrack ! --ctstate RELATED,ESTABLISHED -j KUBE-NODEPORT-NON-LOCAL
filter INPUT,FORWARD           -m conntrack --ctstate NEW -j KUBE-PORTALS-DENY
filter OUTPUT                  -m conntrack --ctstate NEW -m mark ! --mark BIT -j KUBE-PORTALS-DENY
` + // rules that only kube-proxy has, in other versions and modes
	`
filter INPUT,OUTPUT            -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
filter INPUT,FORWARD           -m conntrack --ctstate NEW -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
filter INPUT                   -m comment --comment "kubernetes externally-visible service portals" -j KUBE-EXTERNAL-SERVICES
filter INPUT,FORWARD,OUTPUT    -m conntrack --ctstate NEW -m comment --comment "kubernetes load balancer firewall" -j KUBE-PROXY-FIREWALL
filter FORWARD                 -m comment --comment "kubernetes forward rules" -j KUBE-FORWARD
filter INPUT,OUTPUT            -j KUBE-FIREWALL

filter INPUT                   -m comment --comment "kubernetes health check rules" -j KUBE-NODE-PORT
filter INPUT,FORWARD           -m comment --comment "kube-proxy firewall rules" -j KUBE-PROXY-FIREWALL
filter INPUT                   -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-FILTER
filter OUTPUT                  -m comment --comment "kubernetes ipvs access filter" -j KUBE-IPVS-OUT-FILTER

nat PREROUTING                 -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-CONTAINER
nat OUTPUT                     -m comment --comment "handle ClusterIPs; NOTE: this must be before the NodePort rules" -j KUBE-PORTALS-HOST
nat PREROUTING                 -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-CONTAINER
nat OUTPUT                     -m addrtype --dst-type LOCAL -m comment --comment "handle service NodePorts; NOTE: this must be the last rule in the chain" -j KUBE-NODEPORT-HOST
filter INPUT                   -m comment --comment "Ensure that non-local NodePort traffic can flow" -j KUBE-NODEPORT-NON-LOCAL
`

// jumps maps each rule of jumpLines in its plain form to the rule as listed.
var jumps = readJumps(jumpLines)

func readJumps(lines string) map[Jump]Rule {
	all := make(map[Jump]Rule)
	for line := range strings.Lines(lines) {
		table, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		chains, rule, _ := strings.Cut(rest, " ")
		if rule == "" {
			continue // an empty line
		}
		listed := Rule(strings.TrimSpace(rule))
		for chain := range strings.SplitSeq(chains, ",") {
			all[Jump{ID{table, chain}, listed.plain()}] = listed
		}
	}
	return all
}

// Listed reports whether j is in jumpLines. The order of matches does not matter. Any other rule that leads to
// a chain of ours is foreign.
func (j Jump) Listed() bool { return jumps[Jump{j.At, j.Rule.plain()}] != "" }

// plain returns a rule in a normal form: the matches are sorted, and a mark of one bit is replaced by the word
// BIT. Two rules with the same normal form have the same matches and target.
func (r Rule) plain() Rule {
	text := bitMark.ReplaceAllStringFunc(string(r), func(mark string) string {
		value, mask, _ := strings.Cut(strings.TrimPrefix(mark, "--mark "), "/")
		if n, err := strconv.ParseUint(value, 0, 32); err == nil && value == mask && bits.OnesCount64(n) == 1 {
			return "--mark BIT"
		}
		return mark
	})
	i := max(0, strings.LastIndex(text, "-j "))
	matches := strings.Split(" "+strings.TrimSpace(text[:i]), " -m ")
	slices.Sort(matches)
	return Rule(strings.Join(matches, " -m ") + " " + text[i:])
}

var bitMark = regexp.MustCompile(`--mark \S+`)

// Held returns the chains reported by ours to which foreign rules lead, each with the first chain that has such
// a rule. They cannot be removed, only emptied.
func (t Tables) Held(ours func(ID) bool) map[ID]ID {
	held := make(map[ID]ID)
	for at, rules := range t {
		if ours(at) {
			continue
		}
		for _, r := range rules {
			to := ID{at.Table, r.Target()}
			if !ours(to) || (Jump{at, r}).Listed() {
				continue
			}
			if first, there := held[to]; !there || at.Compare(first) < 0 {
				held[to] = at
			}
		}
	}
	return held
}

// Leftovers returns the block that removes from a table the chains reported by ours, and the listed jumps to
// them. A chain to which foreign rules lead is emptied; kept describes it.
func (t Tables) Leftovers(table string, ours func(ID) bool) (b Block, kept []string) {
	b.Table = table
	held := t.Held(ours)
	for _, id := range slices.SortedFunc(maps.Keys(t), ID.Compare) {
		switch from, stays := held[id]; {
		case id.Table != table:
		case stays && len(t[id]) == 0:
		case stays:
			b.Whole = append(b.Whole, Chain{ID: id})
			kept = append(kept, fmt.Sprintf("keep %s, empty: a rule of %s leads to it", id, from.Chain))
		case ours(id):
			b.Remove = append(b.Remove, id)
		default:
			for _, r := range t[id] {
				if j := (Jump{id, r}); ours(ID{table, r.Target()}) && j.Listed() {
					b.Delete = append(b.Delete, j)
				}
			}
		}
	}
	return b, kept
}
