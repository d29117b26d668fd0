// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// A reason says where, and why, one of ours does not do as kube-proxy does. Each
// stands in docs/what-a-service-means.md or in what the dataplane declares.
type reason struct {
	why string
	so  func(p *proxy, q question, theirs, ours answer) bool
}

var reasons = []reason{
	{"the node itself is refused too where no endpoint serves", func(_ *proxy, q question, theirs, ours answer) bool {
		return q.from.place == "node" && q.to.external() && only(theirs.unheard(), dropped) && only(ours, refused) && q.to.thing.usable() == 0
	}},
	{"a client that is not allowed is dropped, also if no endpoint serves", func(_ *proxy, q question, theirs, ours answer) bool {
		return q.to.way == "load-balancer" && q.ranged() && q.to.thing.usable() == 0 && only(ours, dropped)
	}},
	{"an address of a family in which there is no source range lets nobody in", func(_ *proxy, q question, _, ours answer) bool {
		return q.to.way == "load-balancer" && len(q.to.thing.service.Spec.LoadBalancerSourceRanges) > 0 && !q.ranged() && only(ours, dropped)
	}},
	{"where no node ports are taken there is no verdict either", func(p *proxy, q question, theirs, ours answer) bool {
		return q.to.nodePort() && !p.set.takesNodePorts(q.to.addr.Addr()) && only(theirs, dropped) && only(ours, refused)
	}},
	{"a pod of another node that calls itself by a cluster IP through this node", func(_ *proxy, q question, theirs, ours answer) bool {
		return q.to.way == "cluster-ip" && q.endpoint() && at(q.from.place).node == there && slices.Contains(ours, dropped) && served(theirs)
	}},
	{"a pod of another node that calls itself through this node is answered, and by kube-proxy's nftables mode it is not", func(p *proxy, q question, theirs, ours answer) bool {
		return p.mode == "nftables" && q.endpoint() && at(q.from.place).node == there && slices.Contains(theirs, dropped) && !slices.Contains(ours, dropped)
	}},
	{"pings of a cluster IP are answered, and kube-proxy's nftables mode refuses them", func(p *proxy, q question, theirs, ours answer) bool {
		return p.mode == "nftables" && strings.HasPrefix(q.to.network, "icmp") && !served(theirs) && len(ours) == 1 && strings.HasPrefix(ours[0], "an echo by ")
	}},
	{"a relay passes on no ICMP errors", func(p *proxy, q question, theirs, ours answer) bool {
		return p.mode == "userspace" && strings.HasPrefix(q.to.network, "udp") && q.to.thing.usable() > 0 && only(theirs, refused) && only(ours, dropped)
	}},
	{"it serves node ports on loopback, whatever the iptables mode does", func(p *proxy, q question, theirs, ours answer) bool {
		return p.mode == "userspace" && q.to.addr.Addr().IsLoopback()
	}},
	{"it needs no kernel that routes 127.0.0.0/8, so a client that binds itself to that cannot call out of it, and to ::1 can", func(p *proxy, q question, theirs, ours answer) bool {
		return p.mode == "userspace" && q.from.name == itself.name && !q.to.addr.Addr().IsLoopback()
	}},
	{"a relay forwards nothing: a firewall on what is forwarded stops no client of a Service, and nothing opens it for the others", func(p *proxy, q question, theirs, ours answer) bool {
		if q.to.thing.service.Name == noService {
			return p.mode == "userspace" && p.firewall && only(ours, dropped)
		}
		through, unheard := slices.Contains(theirs, dropped) && served(ours), only(theirs, passed) && only(ours, dropped)
		return p.mode == "userspace" && p.firewall && (through || unheard)
	}},
	{"a relay takes a pod of another node for one, by the Node's podCIDRs, and has for it the endpoints of this node alone", func(p *proxy, q question, theirs, ours answer) bool {
		local := q.to.external() && q.to.thing.service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
		return p.mode == "userspace" && local && strings.HasPrefix(q.from.place, "far") && served(theirs) && (only(ours, dropped) || ours.here())
	}},
	{"a client that stays with one endpoint may stay with one that a firewall keeps apart", func(p *proxy, q question, theirs, ours answer) bool {
		return p.firewall && q.sticky() && (only(theirs, dropped) || only(ours, dropped))
	}},
	{"kube-proxy's ipvs mode does not do as its iptables mode", func(p *proxy, _ question, _, _ answer) bool { return p.kind == theirIPVS }},
	{"IPVS serves no node ports on loopback", func(p *proxy, q question, _, ours answer) bool {
		return p.kind == ourIPVS && q.to.way == "loopback-node-port" && only(ours, refused)
	}},
}

// endpoint reports whether the caller is one of the Service's endpoints.
func (q question) endpoint() bool {
	return slices.ContainsFunc(q.to.thing.ends, func(e end) bool { return e.place == q.from.place })
}

// explained is why ours may differ, or nothing.
func explained(p *proxy, q question, theirs, ours answer) string {
	for _, r := range reasons {
		if r.so(p, q, theirs, ours) {
			return r.why
		}
	}
	return ""
}

// here reports whether every answer is of an endpoint on this node.
func (a answer) here() bool {
	return len(a) > 0 && !slices.ContainsFunc(a, func(one string) bool {
		addr, err := netip.ParseAddrPort(strings.Split(one, " saw ")[0])
		return err != nil || !slices.ContainsFunc(places, func(p place) bool { return p.node == here && slices.Contains(p.addrs[:], addr.Addr()) })
	})
}

func only(a answer, one string) bool { return len(a) == 1 && a[0] == one }

func (t target) nodePort() bool { return strings.HasSuffix(t.way, "node-port") }

func (t target) external() bool { return t.way != "cluster-ip" }

// ranged reports whether source ranges of the target's family are given.
func (q question) ranged() bool {
	return slices.ContainsFunc(q.to.thing.service.Spec.LoadBalancerSourceRanges, func(s string) bool {
		return strings.Contains(s, ":") == q.to.addr.Addr().Is6()
	})
}

// usable is how many endpoints can serve at all.
func (t thing) usable() int {
	n := 0
	for _, e := range t.ends {
		if is(e.state.Ready, true) || is(e.state.Serving, true) && is(e.state.Terminating, false) {
			n++
		}
	}
	return n
}

// is is a condition's value, or what it means when it is not given.
func is(condition *bool, ifNil bool) bool {
	if condition == nil {
		return ifNil
	}
	return *condition
}
