// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/plugins/internal/tree"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// A nodeConfig determines the rules of one family that belong to no Service: from the built-in chains to the trees, and from
// there to the relay's sockets. README.md has a picture.
type nodeConfig struct {
	family    sdk.Family
	node      sdk.Node
	nodePorts []netip.Prefix // addresses and ranges of the machine that take node ports
	uplinks   []flows.Uplink // interfaces of the node's default routes
	to        netip.Addr     // address of this machine to which packets from elsewhere are redirected
	ports     relay.Ports    // of the shared TCP sockets; zero before they are open

	// matchesSockets says that the kernel can match packets for which there is a socket (xt_socket). Then packets of
	// clients that connect while the plugin restarts are dropped, so that TCP sends them again, and not rejected.
	matchesSockets bool
}

// The fixed chains. The first two of each table are the roots of trees.
var (
	portals   = nat("KUBE-PORTALS-VIP")
	nodePorts = nat("KUBE-NODEPORT-ANY")
	container = nat("KUBE-PORTALS-CONTAINER") // packets to and through the node
	host      = nat("KUBE-PORTALS-HOST")      // packets of the node
	toAny     = nat("KUBE-PORTALS-ANY")
	toInside  = nat("KUBE-PORTALS-INSIDE")
	toPods    = nat("KUBE-PORTALS-POD")
	toNode    = nat("KUBE-PORTALS-NODE")

	denied      = filter("KUBE-PORTALS-VIP")
	deniedPorts = filter("KUBE-NODEPORT-ANY")
	nonLocal    = filter("KUBE-NODEPORT-NON-LOCAL")
	deny        = filter("KUBE-PORTALS-DENY")
	ownSocket   = filter("KUBE-PORTALS-OWN")
	looped      = filter("KUBE-PORTALS-LOOPED") // packets to external addresses that come back to the node
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }

// chains returns the fixed chains.
func (n *nodeConfig) chains() []iptables.Chain {
	way := append([]iptables.Rule{iptables.Words("-j", portals.Chain)}, n.toNodePorts(nodePorts)...)
	inside := []iptables.Rule{iptables.Words("-m addrtype --src-type LOCAL -j", toNode.Chain)}
	for _, pods := range n.pods() {
		inside = append(inside, pods.rule("-j "+toPods.Chain))
	}
	var own []iptables.Rule
	if n.matchesSockets { // while the plugin restarts, drop; it then opens the same ports
		own = append(own, hasSocket, "-p tcp -m conntrack --ctstate DNAT -j DROP")
	}
	return []iptables.Chain{
		{ID: toPods, Rules: n.toSocket("-j DNAT --to-destination", sdk.OnPod)},
		{ID: toNode, Rules: n.toSocket("-j REDIRECT --to-ports", sdk.OnNode)},
		{ID: toAny, Rules: append(slices.Clone(inside), n.toSocket("-j DNAT --to-destination", sdk.Elsewhere)...)},
		{ID: toInside, Rules: append(slices.Clone(inside), "-j ACCEPT")},
		{ID: container, Rules: way},
		{ID: host, Rules: way},
		{ID: ownSocket, Rules: append(own,
			"-m conntrack --ctstate DNAT -j ACCEPT",
			"-p tcp -j REJECT --reject-with tcp-reset",
			iptables.Refused(n.family),
		)},
		{ID: deny, Rules: slices.Concat([]iptables.Rule{
			"-m conntrack --ctstate DNAT -j RETURN",
			iptables.Words("-j", denied.Chain),
		}, flows.Looped(n.uplinks, looped.Chain), n.toNodePorts(deniedPorts))},
	}
}

// hasSocket accepts redirected packets for which there is a socket.
const hasSocket iptables.Rule = "-p tcp -m conntrack --ctstate DNAT -m socket --nowildcard -j ACCEPT"

// linkLocal has the link-local addresses. A node may have one per pod, so a single rule is for all of them.
var linkLocal = netip.MustParsePrefix("fe80::/10")

// toNodePorts returns rules that send packets to addresses that take node ports to a chain.
func (n *nodeConfig) toNodePorts(to iptables.ID) []iptables.Rule {
	var rules []iptables.Rule
	if n.family == sdk.IPv6 && n.node.TakesNodePorts(linkLocal.Addr()) {
		rules = append(rules, iptables.Words("-d", linkLocal, "-m addrtype --dst-type LOCAL -j", to.Chain))
	}
	for _, p := range n.nodePorts {
		if sdk.FamilyOf(p.Addr()) == n.family {
			rules = append(rules, iptables.Words("-d", p, "-j", to.Chain))
		}
	}
	return rules
}

// pods returns how to match packets of this node's pods.
func (n *nodeConfig) pods() []match {
	switch pods := n.node.Pods; {
	case pods.Bridge != "":
		return []match{{device: pods.Bridge}}
	case pods.InterfacePrefix != "":
		return []match{{device: pods.InterfacePrefix + "+"}}
	}
	var all []match
	for _, p := range n.node.Pods.CIDRs {
		if sdk.FamilyOf(p.Addr()) == n.family {
			all = append(all, match{from: p.Masked()})
		}
	}
	return all
}

// toSocket returns the rule that redirects TCP to the shared socket for an origin, by target how.
func (n *nodeConfig) toSocket(how string, from sdk.Origin) []iptables.Rule {
	port := n.ports[from]
	switch {
	case port == 0:
		return nil
	case from == sdk.OnNode:
		return []iptables.Rule{iptables.Words("-p tcp", how, port)}
	}
	return []iptables.Rule{iptables.Words("-p tcp", how, netip.AddrPortFrom(n.to, port))}
}

// jumps returns the jumps to our chains in a role. Each is inserted at the top. The jump that protects our sockets exists in
// every role, all others only in Active.
func (n *nodeConfig) jumps(role sdk.Role) []iptables.Jump {
	guard := iptables.Jump{At: filter("INPUT"), Rule: iptables.Words("-m conntrack ! --ctstate RELATED,ESTABLISHED -j", nonLocal.Chain)}
	if role != sdk.Active {
		return []iptables.Jump{guard}
	}
	notOurs := fmt.Sprintf("-m mark ! --mark %#x/%#x", n.mark(), n.mark())
	return []iptables.Jump{
		guard,
		{At: filter("INPUT"), Rule: iptables.Words("-m conntrack --ctstate NEW -j", deny.Chain)},
		{At: filter("FORWARD"), Rule: iptables.Words("-m conntrack --ctstate NEW -j", deny.Chain)},
		{At: filter("OUTPUT"), Rule: iptables.Words("-m conntrack --ctstate NEW", notOurs, "-j", deny.Chain)},
		{At: nat("PREROUTING"), Rule: iptables.Words("-j", container.Chain)},
		{At: nat("OUTPUT"), Rule: iptables.Words(notOurs, "-j", host.Chain)},
	}
}

// mark returns the mark of the relay's own packets, which no rule may redirect. It is the bit below MasqueradeBit.
func (n *nodeConfig) mark() uint32 { return 1 << ((n.node.MasqueradeBit + 31) & 31) }

// Indexes of the trees of one family.
const (
	natPortal  = iota // packets to redirect, by address
	natPort           // packets to redirect, to node ports
	denyPortal        // packets to reject or drop, by address
	denyPort          // packets to reject or drop, to node ports
	guardPort         // packets to our own sockets
	loopPortal        // packets to external addresses that come back to the node
)

// ruleConfig describes the rules of this mode in one family.
func ruleConfig(family sdk.Family) rules.Config {
	return rules.Config{
		Trees: []rules.Tree{
			natPortal:  {Tree: tree.ByAddress(portals, "KUBE-PV-", family, 2)},
			natPort:    {Tree: tree.ByPort(nodePorts, "KUBE-PN-", 2)},
			denyPortal: {Tree: tree.ByAddress(denied, "KUBE-PV-", family, 2)},
			denyPort:   {Tree: tree.ByPort(deniedPorts, "KUBE-PN-", 2)},
			guardPort:  {Tree: tree.ByPort(nonLocal, "KUBE-PI-", 1), Shared: true},
			loopPortal: {Tree: tree.ByAddress(looped, "KUBE-PL-", family, 2), Shared: true, Whole: true},
		},
		IsOurs:  isOurs,
		IsFixed: func(id iptables.ID) bool { return isOurs(id) && !strings.HasPrefix(id.Chain, ownStem) },
		Role:    shownRole,
		Owner:   func(e rules.Entry, _ func(iptables.ID) string) (sdk.Name, bool) { return owner(family, e) },
		Rank:    rank,
	}
}

// shownRole returns the role that the jumps to our chains imply. Draining has the same rules as Standby.
func shownRole(jumps []iptables.Jump) sdk.Role {
	if slices.ContainsFunc(jumps, func(j iptables.Jump) bool { return j.At == nat("PREROUTING") && j.Rule.Target() == container.Chain }) {
		return sdk.Active
	}
	return sdk.Standby
}

// owner returns the Service to which an entry belongs. Its comment names it.
func owner(family sdk.Family, e rules.Entry) (sdk.Name, bool) {
	name := iptables.Labelled(e.Rule.Comment())
	name.Protocol, name.Family = e.Key.Protocol, family
	return name, name.Service != ""
}

// rank returns a higher number for a chain than for all of ours that its rules lead to.
func rank(c iptables.Chain) int {
	switch c.ID {
	case toPods, toNode, ownSocket:
		return 1
	case toAny, toInside:
		return 2
	case portals, nodePorts, denied, deniedPorts, nonLocal, looped:
		return 5 + tree.Deepest
	case container, host, deny:
		return 6 + tree.Deepest // their rules lead to roots
	}
	if strings.HasPrefix(c.ID.Chain, ownStem) {
		return 3
	}
	return 4 + tree.Deepest - c.Level
}

// Names and prefixes of names of our chains, including those of kube-proxy's userspace mode, which this mode takes over.
var (
	ourChains = []string{"KUBE-NODEPORT-ANY", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}
	ourStems  = []string{"KUBE-PORTALS-", "KUBE-PV-", "KUBE-PN-", "KUBE-PI-", "KUBE-PL-", ownStem}
)

// isOurs reports whether a chain is ours.
func isOurs(id iptables.ID) bool {
	return (id.Table == "nat" || id.Table == "filter") && (slices.Contains(ourChains, id.Chain) ||
		slices.ContainsFunc(ourStems, func(stem string) bool { return strings.HasPrefix(id.Chain, stem) }))
}

// familyRules are the rules of one IP family.
type familyRules struct {
	*rules.Rules
	node nodeConfig
}

func newFamilyRules(tool iptables.Tool) *familyRules {
	r := &familyRules{Rules: rules.New(ruleConfig(tool.Family), tool), node: nodeConfig{family: tool.Family}}
	r.SetRoot(natPortal, nil, nil) // no root has rules beside its tree, so any other rule there is foreign
	return r
}

// setRole sets the fixed chains for the node and the jumps for a role. The guards of the shared sockets are the piece of a
// Service without a name.
func (r *familyRules) setRole(role sdk.Role) {
	var guards []rules.Entry
	for _, port := range r.node.ports {
		if port != 0 {
			guards = append(guards, guardEntry(sdk.TCP, port))
		}
	}
	r.SetDesired(map[sdk.Name]rules.Piece{{}: rules.NewPiece(nil, guards)})
	r.SetFixed(r.node.chains())
	r.SetJumps(r.node.jumps(role), r.node.jumps(sdk.Active))
}

// portsIn returns the ports of the shared TCP sockets in the rules of fixed chains. textOf returns these rules.
func portsIn(textOf func(iptables.ID) (string, bool)) (ports relay.Ports) {
	for from, id := range map[sdk.Origin]iptables.ID{sdk.OnPod: toPods, sdk.OnNode: toNode, sdk.Elsewhere: toAny} {
		text, _ := textOf(id)
		if m := redirectedPort.FindStringSubmatch(text); m != nil {
			port, _ := strconv.ParseUint(m[1], 10, 16) // 0 if it is not a port
			ports[from] = uint16(port)
		}
	}
	return ports
}

var redirectedPort = regexp.MustCompile(`--to-(?:ports|destination) (?:\S+:)?(\d+)`)

// probeSocketMatch finds out whether the kernel and the programs have xt_socket.
func (r *familyRules) probeSocketMatch(ctx context.Context) (unable error) {
	probe := iptables.Plan{{Table: "filter", Whole: []iptables.Chain{{ID: ownSocket, Rules: []iptables.Rule{hasSocket}}}}}
	unable = r.Tool.Test(ctx, probe.Script(r.Tool.Backend))
	r.node.matchesSockets = unable == nil
	return unable
}
