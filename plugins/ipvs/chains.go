// SPDX-License-Identifier: Apache-2.0

// Package ipvs serves Services with IPVS, the load balancer of the kernel. A packet takes this path:
//
//	mangle PREROUTING, OUTPUT ─▶ KUBE-IPVS-DROP      drops clients that are not allowed or have no local endpoint
//	mangle INPUT, OUTPUT ──────▶ KUBE-IPVS-NEAR      marks packets from this node to Local frontends
//	nat PREROUTING, OUTPUT ────▶ KUBE-IPVS-SERVICES  marks packets to masquerade
//	filter INPUT ──────────────▶ KUBE-IPVS-GUARD     rejects packets to our addresses at a port without a Service
//	IPVS in INPUT, OUTPUT ─────▶ a virtual server ─▶ one of its destinations
//	nat POSTROUTING ───────────▶ KUBE-IPVS-POSTROUTING
//
// IPVS looks only at packets to addresses that the node has, so the addresses of Services are bound to a dummy
// device, kube-ipvs0, which carries no traffic. Everything that depends on a frontend is in ipsets that the
// fixed chains look up: no rule is written for a Service. The device and the kinds of sets are those of
// kube-proxy, so its users recognize them.
//
// A virtual server has one list of destinations, but a frontend under the Local policy has two: clients on this
// node use all endpoints, because their address is not lost on the way. Their packets get a mark from a set,
// and a second virtual server is selected by that mark.
//
// The package never changes the virtual servers, sets or rules of programs other than kube-proxy, whose place it
// takes.
//
// Start reading at want in want.go, which maps a Service to a piece. place in piece.go adapts the piece to the
// role, package reconcile compares it with the kernel, and apply.go writes the difference.
package ipvs

import (
	"fmt"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// device carries the addresses of Services. It is never up.
const device = flows.IPVSDevice

// Chains that exist independently of Services.
const (
	servicesChain = "KUBE-IPVS-SERVICES"    // nat: packets to frontends
	nodePorts     = "KUBE-IPVS-NODE-PORT"   // nat: packets to node ports
	markNotPod    = "KUBE-IPVS-NOT-POD"     // nat: marks packets unless a pod of the cluster sent them
	markMasq      = masquerade.Mark         // nat: marks packets for masquerading; shared by all dataplanes
	postrouting   = "KUBE-IPVS-POSTROUTING" // nat: masquerades hairpin packets and a few others
	denied        = "KUBE-IPVS-DROP"        // mangle: drops packets
	near          = "KUBE-IPVS-NEAR"        // mangle: marks packets for the virtual server of clients on this node
	guard         = "KUBE-IPVS-GUARD"       // filter: rejects packets to a Service's address at another port
	health        = "KUBE-IPVS-HEALTH"      // filter: accepts health-check ports, in case INPUT has policy DROP
	forward       = "KUBE-IPVS-FORWARD"     // filter: accepts marked packets and those of established connections
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }
func mangle(chain string) iptables.ID { return iptables.ID{Table: "mangle", Chain: chain} }

// chains returns all our chains. They depend on the node alone.
func (n nodeConfig) chains() []iptables.Chain {
	return []iptables.Chain{
		{ID: mangle(denied), Rules: n.dropRules()},
		{ID: mangle(near), Rules: n.nearRules()},
		{ID: nat(servicesChain), Rules: n.servicesRules()},
		{ID: nat(nodePorts), Rules: n.nodePortRules()},
		{ID: nat(markNotPod), Rules: masquerade.Others(n.node, n.family)},
		{ID: nat(postrouting), Rules: n.postroutingRules()},
		{ID: filter(guard), Rules: n.guardRules()},
		{ID: filter(health), Rules: words("-p tcp", n.matchSet(healthPorts, "dst"), "-j ACCEPT")},
		{ID: filter(forward), Rules: iptables.Forwarded(n.node)},
	}
}

// matchSet returns the match on packets whose parts (such as "dst,dst") are in s.
func (n nodeConfig) matchSet(s set, parts string) string {
	return "-m set --match-set " + s.name(n.family) + " " + parts
}

func (n nodeConfig) matchNotSet(s set, parts string) string {
	return "-m set ! --match-set " + s.name(n.family) + " " + parts
}

func words(all ...any) []iptables.Rule { return []iptables.Rule{iptables.Words(all...)} }

// dropRules returns the rules of KUBE-IPVS-DROP, which drops the first packet of clients that must get no
// answer. The chain is in mangle, because packets that the node itself sends reach IPVS before filter.
func (n nodeConfig) dropRules() []iptables.Rule {
	rules := []iptables.Rule{
		iptables.Words(n.matchSet(restricted, "dst,dst"), n.matchNotSet(sources, "dst,dst,src"), "-j DROP"),
		iptables.Words(n.matchSet(noneNear, "dst,dst"), "-j DROP"),
		iptables.Words(n.matchNotSet(noneNearOuter, "dst,dst"), "-j RETURN"),
	}
	for _, pods := range iptables.FromPods(n.node.Pods, n.family) {
		rules = append(rules, iptables.Words(pods, "-j RETURN"))
	}
	return append(rules, "-m addrtype --src-type LOCAL -j RETURN", "-j DROP")
}

// nearRules returns the rules of KUBE-IPVS-NEAR. Packets from this node to a Local frontend get the mark that
// the set has for the frontend, which selects the virtual server with all endpoints.
func (n nodeConfig) nearRules() []iptables.Rule {
	mark := fmt.Sprintf("-j SET --map-set %s dst,dst --map-mark", nearMarks.name(n.family))
	var rules []iptables.Rule
	for _, pods := range iptables.FromPods(n.node.Pods, n.family) {
		rules = append(rules, iptables.Words(pods, mark))
	}
	return append(rules, iptables.Words("-m addrtype --src-type LOCAL", mark))
}

// servicesRules returns the rules of KUBE-IPVS-SERVICES. It marks packets for masquerading and accepts all
// packets to Services, so that no later rule of nat translates them.
func (n nodeConfig) servicesRules() []iptables.Rule {
	rules := []iptables.Rule{
		iptables.Words("-s", iptables.Loopback(n.family), "-j RETURN"),
		iptables.Words(n.matchSet(loadBalancersLocal, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.matchSet(externalIPsLocal, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.matchSet(loadBalancers, "dst,dst"), "-j", markMasq),
		iptables.Words(n.matchSet(loadBalancers, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.matchSet(externalIPs, "dst,dst"), "-j", markMasq),
		iptables.Words(n.matchSet(externalIPs, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.matchSet(clusterIPs, "dst,dst"), "-j", markNotPod),
		iptables.Words(n.matchSet(clusterIPs, "dst,dst"), "-j ACCEPT"),
	}
	for _, p := range n.node.NodePorts {
		if sdk.FamilyOf(p.Addr()) == n.family {
			rules = append(rules, iptables.Words(iptables.To(p), n.matchNotSet(bound, "dst"), "-m addrtype --dst-type LOCAL -j", nodePorts))
		}
	}
	return rules
}

// nodePortRules returns the rules that mark packets to node ports for masquerading, except those under the
// Local policy.
func (n nodeConfig) nodePortRules() []iptables.Rule {
	var rules []iptables.Rule
	for _, p := range []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP} {
		all, local := nodePortSets(p)
		parts := "dst"
		if sets[all].form != formPort {
			parts = "dst,dst"
		}
		rules = append(rules,
			iptables.Words("-p", p, n.matchSet(local, parts), "-j RETURN"),
			iptables.Words("-p", p, n.matchSet(all, parts), "-j", markMasq))
	}
	return rules
}

// postroutingRules returns the rules that masquerade hairpin packets, packets from this node to a Local
// frontend, and packets whose source address the kernel took from our device. Marked packets are masqueraded by
// the chain that all dataplanes share. Packets to loopback keep their source: an endpoint there can answer any
// address of the node, and the guard of loopback drops packets from other addresses.
func (n nodeConfig) postroutingRules() []iptables.Rule {
	return []iptables.Rule{
		iptables.Words(n.matchSet(loopBack, "dst,dst,src"), "-j MASQUERADE --random-fully"),
		iptables.Words("-m mark --mark", fmt.Sprintf("%#x/%#x", n.tag(), tagMask), "-m addrtype --src-type LOCAL -j MASQUERADE --random-fully"),
		iptables.Words("! -d", iptables.Loopback(n.family), n.matchSet(bound, "src"), n.matchNotSet(bound, "dst"), "-j MASQUERADE --random-fully"),
	}
}

// guardRules returns the rules of KUBE-IPVS-GUARD. They reject new connections to a Service's address at a port
// that the Service does not have, which would otherwise reach programs that listen on the node. ICMP and
// health-check ports are accepted, because some load balancers probe the Service's own address.
func (n nodeConfig) guardRules() []iptables.Rule {
	icmp := "icmp"
	if n.family == sdk.IPv6 {
		icmp = "ipv6-icmp"
	}
	rules := []iptables.Rule{
		iptables.Words(n.matchNotSet(bound, "dst"), "-j RETURN"),
		iptables.Words("-p", icmp, "-j RETURN"),
		iptables.Words("-p tcp", n.matchSet(healthPorts, "dst"), "-j RETURN"),
	}
	for _, s := range []set{clusterIPs, loadBalancers, externalIPs, externalIPsLocal} {
		rules = append(rules, iptables.Words(n.matchSet(s, "dst,dst"), "-j RETURN"))
	}
	return append(rules, iptables.Words("-m conntrack --ctstate NEW", iptables.Refused(n.family)))
}

// permanentJumps returns the jumps that exist in every role. They match nothing while no address is bound, and
// connections of another role may need them. So becoming Active takes one write of rules and not two. None has
// a comment, because a kernel may lack xt_comment.
func permanentJumps() []iptables.Jump {
	return []iptables.Jump{ // each jump is inserted at the top
		{At: nat("POSTROUTING"), Rule: "-j " + postrouting},
		{At: filter("FORWARD"), Rule: "-j " + forward},
		{At: filter("INPUT"), Rule: "-j " + health},
		{At: filter("INPUT"), Rule: "-j " + guard},
	}
}

// activeJumps returns the jumps that lead new connections to this dataplane. Those of nat are added before
// those of mangle, whose marks are meant for IPVS and no other translation.
func activeJumps() []iptables.Jump {
	return []iptables.Jump{
		{At: nat("PREROUTING"), Rule: "-j " + servicesChain},
		{At: nat("OUTPUT"), Rule: "-j " + servicesChain},
		{At: mangle("PREROUTING"), Rule: newFlows + denied},
		{At: mangle("OUTPUT"), Rule: newFlows + denied},
		{At: mangle("INPUT"), Rule: newFlows + near},
		{At: mangle("OUTPUT"), Rule: newFlows + near},
	}
}

func allJumps() []iptables.Jump { return append(permanentJumps(), activeJumps()...) }

const newFlows = "-m conntrack --ctstate NEW -j "
