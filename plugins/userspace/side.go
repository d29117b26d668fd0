// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/plugins/internal/tree"
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

// A side is one family: its rules, and what they follow of the node.
type side struct {
	*ruleset.Rules[key]
	node nodeConfig
}

func newSide(tool iptables.Tool) *side {
	return &side{Rules: ruleset.NewRules(ruleConfig(tool.Family), tool), node: nodeConfig{family: tool.Family}}
}

// lead has the fixed chains follow the node, and the jumps role.
func (s *side) lead(role sdk.Role) {
	s.MasqueradeBit = s.node.node.MasqueradeBit
	s.SetFixed(ruleset.Desired{Chains: s.node.chains(), Entries: s.node.guards()})
	s.SetJumps(s.node.jumps(role), s.node.jumps(sdk.Active))
}

// shown is the role that the jumps mean.
func (s *side) shown() sdk.Role {
	for j := range s.Standing() {
		if j.At == nat("PREROUTING") && j.Rule.Target() == container.Chain {
			return sdk.Active
		}
	}
	return sdk.Standby
}

// formerDoors are the doors to which the kernel's rules lead: those of the process
// before this one, unless zero.
func (s *side) formerDoors() (doors [3]uint16) {
	for from, id := range map[sdk.Origin]iptables.ID{sdk.OnPod: toPods, sdk.OnNode: toNode, sdk.Elsewhere: toAny} {
		text, _ := s.Observed(id)
		if m := ledTo.FindStringSubmatch(text); m != nil {
			port, err := strconv.ParseUint(m[1], 10, 16)
			if err == nil {
				doors[from] = uint16(port)
			}
		}
	}
	return doors
}

var ledTo = regexp.MustCompile(`--to-(?:ports|destination) (?:\S+:)?(\d+)`)
