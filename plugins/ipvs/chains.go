// SPDX-License-Identifier: Apache-2.0

// Package ipvs serves Services with the kernel's own load balancer, IPVS. A packet's
// way through what it programs:
//
//	mangle PREROUTING, OUTPUT ─▶ KUBE-IPVS-DROP      callers that may not call, or find no endpoint near
//	mangle INPUT, OUTPUT ──────▶ KUBE-IPVS-NEAR      callers on this node, of Local frontends
//	nat PREROUTING, OUTPUT ────▶ KUBE-IPVS-SERVICES  marks what must be masqueraded
//	filter INPUT ──────────────▶ KUBE-IPVS-GUARD     an address of ours, at no port of ours: REJECT
//	IPVS in INPUT, OUTPUT ─────▶ a virtual service ─▶ one of its destinations
//	nat POSTROUTING ───────────▶ KUBE-IPVS-POSTROUTING
//
// IPVS looks only at packets for addresses that the node has, so those of Services
// are bound to a device, kube-ipvs0, that carries no traffic. What depends on the
// frontend is in sets, which the fixed chains look up: no rule is ever written for
// a Service. The names of sets and device are kube-proxy's, so a reader of those finds
// the way.
//
// A virtual service has one list of destinations. A frontend under the Local policy has two:
// callers on this node, for which no address is lost on the way, use all endpoints.
// Their packets get a mark from a set, and IPVS has a second virtual service by that
// mark.
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

// The chains, which are there whatever Services there are.
const (
	wayIn       = "KUBE-IPVS-SERVICES"    // nat: to all that a Service is reached by
	nodePorts   = "KUBE-IPVS-NODE-PORT"   // nat: to a port of the node
	notPod      = "KUBE-IPVS-NOT-POD"     // nat: mark it unless a pod of the cluster sent it
	markMasq    = masquerade.Mark         // nat: have it masqueraded; all dataplanes share it
	postrouting = "KUBE-IPVS-POSTROUTING" // nat: masquerade what calls itself, and a few others
	denied      = "KUBE-IPVS-DROP"        // mangle: DROP
	near        = "KUBE-IPVS-NEAR"        // mangle: to the virtual service for callers on this node
	guard       = "KUBE-IPVS-GUARD"       // filter: what listens on the node is not reached through an address of a Service
	health      = "KUBE-IPVS-HEALTH"      // filter: health-check ports, which a strict INPUT must let in
	forward     = "KUBE-IPVS-FORWARD"     // filter: what is on its way stays on its way
)

func nat(chain string) iptables.ID    { return iptables.ID{Table: "nat", Chain: chain} }
func filter(chain string) iptables.ID { return iptables.ID{Table: "filter", Chain: chain} }
func mangle(chain string) iptables.ID { return iptables.ID{Table: "mangle", Chain: chain} }

// chains are all of ours. They depend on the node alone.
func (n nodeConfig) chains() []iptables.Chain {
	return []iptables.Chain{
		{ID: mangle(denied), Rules: n.denied()},
		{ID: mangle(near), Rules: n.near()},
		{ID: nat(wayIn), Rules: n.services()},
		{ID: nat(nodePorts), Rules: n.nodePorts()},
		{ID: nat(notPod), Rules: masquerade.Others(n.node, n.family)},
		{ID: nat(postrouting), Rules: n.postrouting()},
		{ID: filter(guard), Rules: n.guard()},
		{ID: filter(health), Rules: words("-p tcp", n.in(healthPorts, "dst"), "-j ACCEPT")},
		{ID: filter(forward), Rules: iptables.Forwarded(n.node)},
	}
}

// in is the words for packets whose parts (such as "dst,dst") are in s.
func (n nodeConfig) in(s set, parts string) string {
	return "-m set --match-set " + s.in(n.family) + " " + parts
}

func (n nodeConfig) notIn(s set, parts string) string {
	return "-m set ! --match-set " + s.in(n.family) + " " + parts
}

func words(all ...any) []iptables.Rule { return []iptables.Rule{iptables.Words(all...)} }

// denied drops the first packet of a caller that must get no answer. It stands in
// mangle, because at filter IPVS has already taken what the node itself sends.
func (n nodeConfig) denied() []iptables.Rule {
	rules := []iptables.Rule{
		iptables.Words(n.in(restricted, "dst,dst"), n.notIn(sources, "dst,dst,src"), "-j DROP"),
		iptables.Words(n.in(noneNear, "dst,dst"), "-j DROP"),
		iptables.Words(n.notIn(noneNearOuter, "dst,dst"), "-j RETURN"),
	}
	for _, pods := range iptables.FromPods(n.node.Pods, n.family) {
		rules = append(rules, iptables.Words(pods, "-j RETURN"))
	}
	return append(rules, "-m addrtype --src-type LOCAL -j RETURN", "-j DROP")
}

// near leads callers on this node, of a Local frontend, to the virtual service that
// has all endpoints: the set says which mark is its.
func (n nodeConfig) near() []iptables.Rule {
	mark := fmt.Sprintf("-j SET --map-set %s dst,dst --map-mark", nearMarks.in(n.family))
	var rules []iptables.Rule
	for _, pods := range iptables.FromPods(n.node.Pods, n.family) {
		rules = append(rules, iptables.Words(pods, mark))
	}
	return append(rules, iptables.Words("-m addrtype --src-type LOCAL", mark))
}

// services marks what must be masqueraded, and ends the way through nat of all that
// is sent to a Service: no other program shall translate it.
func (n nodeConfig) services() []iptables.Rule {
	rules := []iptables.Rule{
		iptables.Words("-s", iptables.Loopback(n.family), "-j RETURN"),
		iptables.Words(n.in(loadBalancersLocal, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.in(externalIPsLocal, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.in(loadBalancers, "dst,dst"), "-j", markMasq),
		iptables.Words(n.in(loadBalancers, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.in(externalIPs, "dst,dst"), "-j", markMasq),
		iptables.Words(n.in(externalIPs, "dst,dst"), "-j ACCEPT"),
		iptables.Words(n.in(clusterIPs, "dst,dst"), "-j", notPod),
		iptables.Words(n.in(clusterIPs, "dst,dst"), "-j ACCEPT"),
	}
	for _, p := range n.node.NodePorts {
		if sdk.FamilyOf(p.Addr()) == n.family {
			rules = append(rules, iptables.Words(iptables.To(p), n.notIn(bound, "dst"), "-m addrtype --dst-type LOCAL -j", nodePorts))
		}
	}
	return rules
}

// nodePorts marks all callers of node ports, but for those under the Local policy.
func (n nodeConfig) nodePorts() []iptables.Rule {
	var rules []iptables.Rule
	for _, p := range []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP} {
		all, local := nodePortSets(p)
		parts := "dst"
		if sets[all].form != formPort {
			parts = "dst,dst"
		}
		rules = append(rules,
			iptables.Words("-p", p, n.in(local, parts), "-j RETURN"),
			iptables.Words("-p", p, n.in(all, parts), "-j", markMasq))
	}
	return rules
}

// postrouting hides the caller: from itself; where a Local frontend was called from
// the node; and where the kernel chose an address of a Service as the node's own, for it
// has that address too. Where a mark says so, what all dataplanes share does it. An endpoint on loopback can answer
// any address of the node, and a guard of loopback drops packets from other addresses.
func (n nodeConfig) postrouting() []iptables.Rule {
	return []iptables.Rule{
		iptables.Words(n.in(loopBack, "dst,dst,src"), "-j MASQUERADE --random-fully"),
		iptables.Words("-m mark --mark", fmt.Sprintf("%#x/%#x", n.tag(), tagMask), "-m addrtype --src-type LOCAL -j MASQUERADE --random-fully"),
		iptables.Words("! -d", iptables.Loopback(n.family), n.in(bound, "src"), n.notIn(bound, "dst"), "-j MASQUERADE --random-fully"),
	}
}

// guard keeps what listens on the node out of reach of callers of an address of
// a Service at another port. Whether such an address is alive may be asked, and whether
// a Service is: some load balancers ask by its own address.
func (n nodeConfig) guard() []iptables.Rule {
	icmp := "icmp"
	if n.family == sdk.IPv6 {
		icmp = "ipv6-icmp"
	}
	rules := []iptables.Rule{
		iptables.Words(n.notIn(bound, "dst"), "-j RETURN"),
		iptables.Words("-p", icmp, "-j RETURN"),
		iptables.Words("-p tcp", n.in(healthPorts, "dst"), "-j RETURN"),
	}
	for _, s := range []set{clusterIPs, loadBalancers, externalIPs, externalIPsLocal} {
		rules = append(rules, iptables.Words(n.in(s, "dst,dst"), "-j RETURN"))
	}
	return append(rules, iptables.Words("-m conntrack --ctstate NEW", iptables.Refused(n.family)))
}

// permanent are the jumps that stand in every role: they catch nothing while no address is
// bound, and connections of another role may need them. So one write of rules, and not two,
// makes this dataplane Active. None has a comment: a kernel may lack xt_comment.
func permanent() []iptables.Jump {
	return []iptables.Jump{ // each is put at the top
		{At: nat("POSTROUTING"), Rule: "-j " + postrouting},
		{At: filter("FORWARD"), Rule: "-j " + forward},
		{At: filter("INPUT"), Rule: "-j " + health},
		{At: filter("INPUT"), Rule: "-j " + guard},
	}
}

// catching are the jumps that lead new connections our way. The one of nat goes in
// before those of mangle, whose marks are meant for no translation but IPVS's.
func catching() []iptables.Jump {
	return []iptables.Jump{
		{At: nat("PREROUTING"), Rule: "-j " + wayIn},
		{At: nat("OUTPUT"), Rule: "-j " + wayIn},
		{At: mangle("PREROUTING"), Rule: newFlows + denied},
		{At: mangle("OUTPUT"), Rule: newFlows + denied},
		{At: mangle("INPUT"), Rule: newFlows + near},
		{At: mangle("OUTPUT"), Rule: newFlows + near},
	}
}

func allJumps() []iptables.Jump { return append(permanent(), catching()...) }

const newFlows = "-m conntrack --ctstate NEW -j "
