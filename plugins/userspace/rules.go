// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// The trees of one family, by their indexes.
const (
	leadsPortal = iota // nat: by address, to the relay
	leadsPort          // nat: node ports
	turnsPortal        // filter: the same two, of what is rejected or dropped
	turnsPort
	guards // filter: sockets of ours
)

// A key says what rules are for: a frontend, or the health port of a Service.
type key struct {
	caught place
	health sdk.Name
}

// ruleConfig says what is particular to this dataplane's rules in one family.
func ruleConfig(family sdk.Family) ruleset.Config[key] {
	return ruleset.Config[key]{
		Family: family,
		Trees: []ruleset.Tree{
			leadsPortal: {Tree: tree.ByAddress(vips, "KUBE-PV-", family, 2)},
			leadsPort:   {Tree: tree.ByPort(ports, "KUBE-PN-", 2)},
			turnsPortal: {Tree: tree.ByAddress(turned, "KUBE-PV-", family, 2)},
			turnsPort:   {Tree: tree.ByPort(turnedPorts, "KUBE-PN-", 2)},
			guards:      {Tree: tree.ByPort(nonLocal, "KUBE-PI-", 1), Shared: true},
		},
		Ours: isOurs,
		Rank: rank,
	}
}

// rank orders chains so that each has a higher rank than those that it leads to.
func rank(c iptables.Chain) int {
	switch c.ID {
	case toPods, toNode, ownSocket:
		return 0
	case toAny, toInside:
		return 1
	case vips, ports, turned, turnedPorts, nonLocal:
		return 4 + tree.Deepest
	case container, host, deny:
		return 5 + tree.Deepest // they lead to roots
	}
	if strings.HasPrefix(c.ID.Chain, ownStem) {
		return 2
	}
	return 3 + tree.Deepest - c.Level
}

// The names of chains that are ours, or of kube-proxy's userspace mode, whose place
// we take: these words, and what begins with one of those.
var (
	ourChains = []string{"KUBE-NODEPORT-ANY", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}
	ourStems  = []string{"KUBE-PORTALS-", "KUBE-PV-", "KUBE-PN-", "KUBE-PI-", ownStem}
)

func isOurs(id iptables.ID) bool {
	return (id.Table == "nat" || id.Table == "filter") && (slices.Contains(ourChains, id.Chain) ||
		slices.ContainsFunc(ourStems, func(stem string) bool { return strings.HasPrefix(id.Chain, stem) }))
}

// familyRules are the rules of one IP family, and what they follow of the node.
type familyRules struct {
	*ruleset.Rules[key]
	node nodeConfig
}

func newFamilyRules(tool iptables.Tool) *familyRules {
	return &familyRules{Rules: ruleset.NewRules(ruleConfig(tool.Family), tool), node: nodeConfig{family: tool.Family}}
}

// follow has the fixed chains follow the node, and the jumps role.
func (r *familyRules) follow(role sdk.Role) {
	r.SetFixed(ruleset.Desired{Chains: r.node.chains(), Entries: r.node.guards()})
	r.SetJumps(r.node.jumps(role), r.node.jumps(sdk.Active))
}

// lead reports whether the kernel has the jumps of a dataplane that is Active.
func (r *familyRules) lead() bool {
	for j := range r.Standing() {
		if j.At == nat("PREROUTING") && j.Rule.Target() == container.Chain {
			return true
		}
	}
	return false
}

// formerPorts are those to which the kernel's rules lead: of the process before this one,
// unless zero.
func (r *familyRules) formerPorts() (ports relay.Ports) {
	for from, id := range map[sdk.Origin]iptables.ID{sdk.OnPod: toPods, sdk.OnNode: toNode, sdk.Elsewhere: toAny} {
		text, _ := r.Observed(id)
		if m := ledTo.FindStringSubmatch(text); m != nil {
			port, err := strconv.ParseUint(m[1], 10, 16)
			if err == nil {
				ports[from] = uint16(port)
			}
		}
	}
	return ports
}

var ledTo = regexp.MustCompile(`--to-(?:ports|destination) (?:\S+:)?(\d+)`)

// findPatience finds out whether the kernel and the programs can tell whether a socket is
// there.
func (r *familyRules) findPatience(ctx context.Context) (unable error) {
	probe := new(iptables.Script)
	probe.Begin("filter")
	probe.Chain(ownSocket.Chain, []iptables.Rule{hasSocket})
	probe.Commit()
	unable = r.Tool.Test(ctx, probe)
	r.node.patient = unable == nil
	return unable
}
