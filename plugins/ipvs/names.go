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
// callers on this node, for whom no address is lost on the way, use all endpoints.
// Their packets get a mark from a set, and IPVS has a second virtual service by that
// mark.
package ipvs

import (
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
)

// device carries the addresses of Services. It is never up.
const device = "kube-ipvs0"

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

// A set is one of the kernel's, by its place in sets.
type set uint8

// The sets, in the order in which entries go in. They go out in the other.
const (
	sources       set = iota // ranges that may call a frontend
	restricted               // frontends that only some may call
	noneNear                 // frontends without an endpoint that a caller may be sent to
	noneNearOuter            // the same, for callers that are not on this node
	bound                    // addresses on our device
	loopBack                 // endpoints that may call themselves
	nearMarks                // frontends whose callers on this node have a virtual service of their own
	clusterIPs
	externalIPs
	externalIPsLocal
	loadBalancers
	loadBalancersLocal
	nodePortsTCP
	nodePortsTCPLocal
	nodePortsUDP
	nodePortsUDPLocal
	nodePortsSCTP
	nodePortsSCTPLocal
	healthPorts
	setCount
)

// registers are the sets whose entries say which frontends are ours, and of which Service.
var registers = []set{
	clusterIPs, externalIPs, externalIPsLocal, loadBalancers, loadBalancersLocal,
	nodePortsTCP, nodePortsTCPLocal, nodePortsUDP, nodePortsUDPLocal, nodePortsSCTP, nodePortsSCTPLocal,
}

// A form is the type of a set, which says what its entries are made of.
type form string

// The forms, as ipset names them.
const (
	formAddr       form = "hash:ip"
	formAddrPort   form = "hash:ip,port"
	formAddrPortIP form = "hash:ip,port,ip"
	formSources    form = "hash:ip,port,net"
	formPort       form = "bitmap:port"
)

// sets says what each is called in IPv4, and what it is made of.
var sets = [setCount]struct {
	name string
	form form
}{
	sources:            {"KUBE-LOAD-BALANCER-SOURCE-CIDR", formSources},
	restricted:         {"KUBE-LOAD-BALANCER-FW", formAddrPort},
	noneNear:           {"KUBE-NO-LOCAL", formAddrPort},
	noneNearOuter:      {"KUBE-NO-LOCAL-EXTERNAL", formAddrPort},
	bound:              {"KUBE-IPVS-IPS", formAddr},
	loopBack:           {"KUBE-LOOP-BACK", formAddrPortIP},
	nearMarks:          {"KUBE-NEAR", formAddrPort},
	clusterIPs:         {"KUBE-CLUSTER-IP", formAddrPort},
	externalIPs:        {"KUBE-EXTERNAL-IP", formAddrPort},
	externalIPsLocal:   {"KUBE-EXTERNAL-IP-LOCAL", formAddrPort},
	loadBalancers:      {"KUBE-LOAD-BALANCER", formAddrPort},
	loadBalancersLocal: {"KUBE-LOAD-BALANCER-LOCAL", formAddrPort},
	nodePortsTCP:       {"KUBE-NODE-PORT-TCP", formPort},
	nodePortsTCPLocal:  {"KUBE-NODE-PORT-LOCAL-TCP", formPort},
	nodePortsUDP:       {"KUBE-NODE-PORT-UDP", formPort},
	nodePortsUDPLocal:  {"KUBE-NODE-PORT-LOCAL-UDP", formPort},
	nodePortsSCTP:      {"KUBE-NODE-PORT-SCTP-HASH", formAddrPort},
	nodePortsSCTPLocal: {"KUBE-NODE-PORT-LOCAL-SCTP-HASH", formAddrPort},
	healthPorts:        {"KUBE-HEALTH-CHECK-NODE-PORT", formPort},
}

// longestSetName is what the kernel holds.
const longestSetName = 31

// in is the name that s has in a family.
func (s set) in(f sdk.Family) string {
	name := sets[s].name
	if f == sdk.IPv6 {
		name = "KUBE-6-" + strings.TrimPrefix(name, "KUBE-")
	}
	return name[:min(len(name), longestSetName)]
}

// setCalled is the way back from in.
func setCalled(name string) (set, sdk.Family, bool) {
	for s := range setCount {
		for _, f := range families {
			if s.in(f) == name {
				return s, f, true
			}
		}
	}
	return 0, 0, false
}

// nodePortSets are the sets of node ports of a protocol: of all, and of those under
// the Local policy.
func nodePortSets(p sdk.Protocol) (all, local set) {
	switch p {
	case sdk.UDP:
		return nodePortsUDP, nodePortsUDPLocal
	case sdk.SCTP:
		return nodePortsSCTP, nodePortsSCTPLocal
	}
	return nodePortsTCP, nodePortsTCPLocal
}
