// SPDX-License-Identifier: Apache-2.0

package ipvs

import "github.com/pointsman/pointsman/sdk"

// A set identifies one of our ipsets. It is the index in sets.
type set uint8

// The sets, in the order in which members are added. Members are removed in the reverse order.
const (
	sources       set = iota // source ranges of frontends
	restricted               // frontends with source ranges
	noneNear                 // frontends whose policy leaves no endpoint
	noneNearOuter            // the same, for clients outside this node
	bound                    // addresses on our device
	loopBack                 // endpoints that may be clients of their own Service
	nearMarks                // marks for Local frontends: clients on this node use another virtual server
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

// registers reports whether the members of s show which frontends are ours, and to which Service they belong.
func (s set) registers() bool { return clusterIPs <= s && s <= nodePortsSCTPLocal }

// hasNodePorts reports whether the members of s are node ports at all addresses of the node.
func (s set) hasNodePorts() bool { return nodePortsTCP <= s && s <= nodePortsSCTPLocal }

// A form is the type of a set, which determines the fields of its members.
type form string

// Forms by ipset's names.
const (
	formAddr       form = "hash:ip"
	formAddrPort   form = "hash:ip,port"
	formAddrPortIP form = "hash:ip,port,ip"
	formSources    form = "hash:ip,port,net"
	formPort       form = "bitmap:port"
)

// sets has the name and form of each set, and whether kube-proxy has a set of this kind.
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

// longestSetName is the maximum length of a set name in the kernel (IPSET_MAXNAMELEN without the trailing
// zero).
const longestSetName = 31

// name returns the name of s in a family. It differs from kube-proxy's name. kube-proxy creates its sets
// without comments, and does nothing at all if a set with one of its names has other parameters.
func (s set) name(f sdk.Family) string { return "PM-" + s.suffix(f) }

// kubeProxyName returns the name of kube-proxy's set of this kind in a family.
func (s set) kubeProxyName(f sdk.Family) string {
	name := "KUBE-" + s.suffix(f)
	return name[:min(len(name), longestSetName)]
}

func (s set) suffix(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "6-" + sets[s].name
	}
	return sets[s].name
}

// A kernelSet identifies a set in the kernel by its kind and family.
type kernelSet struct {
	set         set
	family      sdk.Family
	isKubeProxy bool // the set is kube-proxy's
}

// setsByName is the inverse of name and kubeProxyName.
var setsByName = func() map[string]kernelSet {
	all := make(map[string]kernelSet)
	for s := range setCount {
		for _, f := range families {
			all[s.name(f)] = kernelSet{s, f, false}
			if sets[s].proxied {
				all[s.kubeProxyName(f)] = kernelSet{s, f, true}
			}
		}
	}
	return all
}()

// nodePortSets returns the sets of node ports of a protocol: all of them, and those under the Local policy.
func nodePortSets(p sdk.Protocol) (all, local set) {
	switch p {
	case sdk.UDP:
		return nodePortsUDP, nodePortsUDPLocal
	case sdk.SCTP:
		return nodePortsSCTP, nodePortsSCTPLocal
	}
	return nodePortsTCP, nodePortsTCPLocal
}
