// SPDX-License-Identifier: Apache-2.0

package ipvs

import "github.com/pointsman/pointsman/sdk"

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

// sets says what each is called, what it is made of, and whether kube-proxy has one of the kind.
var sets = [setCount]struct {
	name    string
	form    form
	proxied bool
}{
	sources:            {"LOAD-BALANCER-SOURCE-CIDR", formSources, true},
	restricted:         {"LOAD-BALANCER-FW", formAddrPort, true},
	noneNear:           {"NO-LOCAL", formAddrPort, false},
	noneNearOuter:      {"NO-LOCAL-EXTERNAL", formAddrPort, false},
	bound:              {"IPVS-IPS", formAddr, true},
	loopBack:           {"LOOP-BACK", formAddrPortIP, true},
	nearMarks:          {"NEAR", formAddrPort, false},
	clusterIPs:         {"CLUSTER-IP", formAddrPort, true},
	externalIPs:        {"EXTERNAL-IP", formAddrPort, true},
	externalIPsLocal:   {"EXTERNAL-IP-LOCAL", formAddrPort, true},
	loadBalancers:      {"LOAD-BALANCER", formAddrPort, true},
	loadBalancersLocal: {"LOAD-BALANCER-LOCAL", formAddrPort, true},
	nodePortsTCP:       {"NODE-PORT-TCP", formPort, true},
	nodePortsTCPLocal:  {"NODE-PORT-LOCAL-TCP", formPort, true},
	nodePortsUDP:       {"NODE-PORT-UDP", formPort, true},
	nodePortsUDPLocal:  {"NODE-PORT-LOCAL-UDP", formPort, true},
	nodePortsSCTP:      {"NODE-PORT-SCTP-HASH", formAddrPort, true},
	nodePortsSCTPLocal: {"NODE-PORT-LOCAL-SCTP-HASH", formAddrPort, true},
	healthPorts:        {"HEALTH-CHECK-NODE-PORT", formPort, true},
}

// longestSetName is what the kernel holds.
const longestSetName = 31

// in is the name that s has in a family. It is none of kube-proxy's, which makes its sets without
// room for notes, and does nothing at all where one of their names stands for a set made otherwise.
func (s set) in(f sdk.Family) string { return "PM-" + s.called(f) }

// ofKubeProxy is the name that kube-proxy's set of the kind has in a family.
func (s set) ofKubeProxy(f sdk.Family) string {
	name := "KUBE-" + s.called(f)
	return name[:min(len(name), longestSetName)]
}

func (s set) called(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "6-" + sets[s].name
	}
	return sets[s].name
}

// A kernelSet is what a name that the kernel has means.
type kernelSet struct {
	set     set
	family  sdk.Family
	proxied bool // it is kube-proxy's
}

// setsCalled is the way back from in, and from ofKubeProxy.
var setsCalled = func() map[string]kernelSet {
	all := make(map[string]kernelSet)
	for s := range setCount {
		for _, f := range families {
			all[s.in(f)] = kernelSet{s, f, false}
			if sets[s].proxied {
				all[s.ofKubeProxy(f)] = kernelSet{s, f, true}
			}
		}
	}
	return all
}()

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
