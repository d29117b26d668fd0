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

// A nodeConfig is what the rules of one family follow with no Service at all: the ways in,
// and the ways from there to the relay's sockets. README.md shows them.
type nodeConfig struct {
	family    sdk.Family
	node      sdk.Node
	nodePorts []netip.Prefix // of which every address takes node ports now
	uplinks   []flows.Uplink // by which the node's default routes lead
	to        netip.Addr     // of this node: where packets from elsewhere are sent to

	// doors are the ports of the sockets for TCP, by where the client is. None: there
	// are none yet.
	doors relay.Ports

	// matchesSockets says that the kernel can match a socket that is there (xt_socket): a
	// client that comes while none is has to try again, as TCP does by itself, and is not refused.
	matchesSockets bool
}

// The chains that are there without any frontend. In those that stand first hang
// the trees of what is in the same table.
var (
	vips      = nat("KUBE-PORTALS-VIP")
	ports     = nat("KUBE-NODEPORT-ANY")
	container = nat("KUBE-PORTALS-CONTAINER") // what comes to the node
	host      = nat("KUBE-PORTALS-HOST")      // what the node sends
	toAny     = nat("KUBE-PORTALS-ANY")
	toInside  = nat("KUBE-PORTALS-INSIDE")
	toPods    = nat("KUBE-PORTALS-POD")
	toNode    = nat("KUBE-PORTALS-NODE")

	denied      = filter("KUBE-PORTALS-VIP")
	deniedPorts = filter("KUBE-NODEPORT-ANY")
	nonLocal    = filter("KUBE-NODEPORT-NON-LOCAL")
	deny        = filter("KUBE-PORTALS-DENY")
	ownSocket   = filter("KUBE-PORTALS-OWN")
	looped      = filter("KUBE-PORTALS-LOOPED") // what comes back from where it was sent on
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }

// chains are the fixed ones, and their rules.
func (n *nodeConfig) chains() []iptables.Chain {
	way := append([]iptables.Rule{iptables.Words("-j", vips.Chain)}, n.atNode(ports)...)
	inside := append([]iptables.Rule{iptables.Words("-m addrtype --src-type LOCAL -j", toNode.Chain)}, n.byPods()...)
	return []iptables.Chain{
		{ID: toPods, Rules: n.door("-j DNAT --to-destination", sdk.OnPod)},
		{ID: toNode, Rules: n.door("-j REDIRECT --to-ports", sdk.OnNode)},
		{ID: toAny, Rules: append(slices.Clone(inside), n.door("-j DNAT --to-destination", sdk.Elsewhere)...)},
		{ID: toInside, Rules: append(slices.Clone(inside), "-j ACCEPT")},
		{ID: container, Rules: way},
		{ID: host, Rules: way},
		{ID: ownSocket, Rules: append(n.awaited(),
			"-m conntrack --ctstate DNAT -j ACCEPT",
			"-p tcp -j REJECT --reject-with tcp-reset",
			iptables.Refused(n.family),
		)},
		{ID: deny, Rules: slices.Concat([]iptables.Rule{
			"-m conntrack --ctstate DNAT -j RETURN",
			iptables.Words("-j", denied.Chain),
		}, flows.Looped(n.uplinks, looped.Chain), n.atNode(deniedPorts))},
	}
}

// hasSocket accepts packets for which there is a socket.
const hasSocket iptables.Rule = "-p tcp -m conntrack --ctstate DNAT -m socket --nowildcard -j ACCEPT"

// awaited has clients that were led here wait for a relay that is being started anew: it
// opens the same doors again.
func (n *nodeConfig) awaited() []iptables.Rule {
	if !n.matchesSockets {
		return nil
	}
	return []iptables.Rule{hasSocket, "-p tcp -m conntrack --ctstate DNAT -j DROP"}
}

// guards are the entries for the sockets of TCP that all frontends share.
func (n *nodeConfig) guards() []rules.Entry {
	var all []rules.Entry
	for _, port := range n.doors {
		if port != 0 {
			all = append(all, guard(sdk.TCP, port))
		}
	}
	return all
}

// onLinks are the addresses that each link has for itself. There are as many as pods, so
// one rule is for all of them.
var onLinks = netip.MustParsePrefix("fe80::/10")

// atNode leads what is for addresses that take node ports to a chain.
func (n *nodeConfig) atNode(to iptables.ID) []iptables.Rule {
	var rules []iptables.Rule
	if n.family == sdk.IPv6 && n.node.TakesNodePorts(onLinks.Addr()) {
		rules = append(rules, iptables.Words("-d", onLinks, "-m addrtype --dst-type LOCAL -j", to.Chain))
	}
	for _, p := range n.nodePorts {
		if sdk.FamilyOf(p.Addr()) == n.family {
			rules = append(rules, iptables.Words("-d", p, "-j", to.Chain))
		}
	}
	return rules
}

// byPods leads pods of this node to the socket for them.
func (n *nodeConfig) byPods() []iptables.Rule {
	var rules []iptables.Rule
	for _, pods := range n.pods() {
		rules = append(rules, pods.rule("-j "+toPods.Chain))
	}
	return rules
}

// pods are how pods of this node are known.
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

// door leads TCP to the socket for callers from there.
func (n *nodeConfig) door(how string, from sdk.Origin) []iptables.Rule {
	port := n.doors[from]
	switch {
	case port == 0:
		return nil
	case from == sdk.OnNode:
		return []iptables.Rule{iptables.Words("-p tcp", how, port)}
	}
	return []iptables.Rule{iptables.Words("-p tcp", how, netip.AddrPortFrom(n.to, port))}
}

// jumps lead packets into our chains. The guard of our sockets is there in every
// role; without the others we catch nothing. Each is put at the top.
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

// mark is on what the relay itself sends, so that it never comes back to it. It is the bit
// below that for masquerading, which would give those packets another source.
func (n *nodeConfig) mark() uint32 { return 1 << ((n.node.MasqueradeBit + 31) & 31) }

// The trees of one family, by their indexes.
const (
	leadsPortal  = iota // nat: by address, to the relay
	leadsPort           // nat: node ports
	deniesPortal        // filter: the same two, of what is rejected or dropped
	deniesPort
	guards       // filter: sockets of ours
	loopedPortal // filter: external addresses, whatever the port
)

// ruleConfig says what is particular to this dataplane's rules in one family.
func ruleConfig(family sdk.Family) rules.Config {
	return rules.Config{
		Trees: []rules.Tree{
			leadsPortal:  {Tree: tree.ByAddress(vips, "KUBE-PV-", family, 2)},
			leadsPort:    {Tree: tree.ByPort(ports, "KUBE-PN-", 2)},
			deniesPortal: {Tree: tree.ByAddress(denied, "KUBE-PV-", family, 2)},
			deniesPort:   {Tree: tree.ByPort(deniedPorts, "KUBE-PN-", 2)},
			guards:       {Tree: tree.ByPort(nonLocal, "KUBE-PI-", 1), Shared: true},
			loopedPortal: {Tree: tree.ByAddress(looped, "KUBE-PL-", family, 2), Shared: true, Whole: true},
		},
		IsOurs:  isOurs,
		IsFixed: func(id iptables.ID) bool { return isOurs(id) && !strings.HasPrefix(id.Chain, ownStem) },
		Role:    shownRole,
		Owner:   func(e rules.Entry, _ func(iptables.ID) string) (sdk.Name, bool) { return owner(family, e) },
		Rank:    rank,
	}
}

// shownRole returns the role that jumps to our chains imply. No rule shows Draining.
func shownRole(jumps []iptables.Jump) sdk.Role {
	if slices.ContainsFunc(jumps, func(j iptables.Jump) bool { return j.At == nat("PREROUTING") && j.Rule.Target() == container.Chain }) {
		return sdk.Active
	}
	return sdk.Standby
}

// owner returns the Service to which an entry belongs, by its comment.
func owner(family sdk.Family, e rules.Entry) (sdk.Name, bool) {
	name := iptables.Labelled(e.Rule.Comment())
	name.Protocol, name.Family = e.Key.Protocol, family
	return name, name.Service != ""
}

// rank orders chains so that each has a higher rank than those that it leads to.
func rank(c iptables.Chain) int {
	switch c.ID {
	case toPods, toNode, ownSocket:
		return 1
	case toAny, toInside:
		return 2
	case vips, ports, denied, deniedPorts, nonLocal, looped:
		return 5 + tree.Deepest
	case container, host, deny:
		return 6 + tree.Deepest // they lead to roots
	}
	if strings.HasPrefix(c.ID.Chain, ownStem) {
		return 3
	}
	return 4 + tree.Deepest - c.Level
}

// The names of chains that are ours, or of kube-proxy's userspace mode, whose place
// we take: these words, and what begins with one of those.
var (
	ourChains = []string{"KUBE-NODEPORT-ANY", "KUBE-NODEPORT-CONTAINER", "KUBE-NODEPORT-HOST", "KUBE-NODEPORT-NON-LOCAL"}
	ourStems  = []string{"KUBE-PORTALS-", "KUBE-PV-", "KUBE-PN-", "KUBE-PI-", "KUBE-PL-", ownStem}
)

func isOurs(id iptables.ID) bool {
	return (id.Table == "nat" || id.Table == "filter") && (slices.Contains(ourChains, id.Chain) ||
		slices.ContainsFunc(ourStems, func(stem string) bool { return strings.HasPrefix(id.Chain, stem) }))
}

// familyRules are the rules of one IP family, and what they follow of the node.
type familyRules struct {
	*rules.Rules
	node nodeConfig
}

func newFamilyRules(tool iptables.Tool) *familyRules {
	r := &familyRules{Rules: rules.New(ruleConfig(tool.Family), tool), node: nodeConfig{family: tool.Family}}
	r.SetRoot(leadsPortal, nil, nil) // no root has rules beside its tree, so any other rule there is foreign
	return r
}

// follow has the fixed chains follow the node, and the jumps role. The guards of sockets that all frontends share are the
// piece of a Service without a name.
func (r *familyRules) follow(role sdk.Role) {
	r.SetFixed(r.node.chains())
	r.SetDesired(map[sdk.Name]rules.Piece{{}: rules.NewPiece(nil, r.node.guards())})
	r.SetJumps(r.node.jumps(role), r.node.jumps(sdk.Active))
}

// ledTo are the ports of TCP to which rules lead, given the text of each chain. Of a process
// that is to begin they are those of the one before it; zero: none.
func ledTo(textOf func(iptables.ID) string) (ports relay.Ports) {
	for from, id := range map[sdk.Origin]iptables.ID{sdk.OnPod: toPods, sdk.OnNode: toNode, sdk.Elsewhere: toAny} {
		if m := portLedTo.FindStringSubmatch(textOf(id)); m != nil {
			port, _ := strconv.ParseUint(m[1], 10, 16) // zero if it is no port
			ports[from] = uint16(port)
		}
	}
	return ports
}

var portLedTo = regexp.MustCompile(`--to-(?:ports|destination) (?:\S+:)?(\d+)`)

// probeSocketMatch finds out whether the kernel and the programs can match packets for which
// a socket is there.
func (r *familyRules) probeSocketMatch(ctx context.Context) (unable error) {
	probe := new(iptables.Script)
	probe.Begin("filter")
	probe.Chain(ownSocket.Chain, []iptables.Rule{hasSocket})
	probe.Commit()
	unable = r.Tool.Test(ctx, probe)
	r.node.matchesSockets = unable == nil
	return unable
}
