// SPDX-License-Identifier: Apache-2.0

package track

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/sdk"
)

// Facts are what the operator says of this node. What Kubernetes says of it comes
// with SetNode.
type Facts struct {
	NodeName  string       // as endpoints name it: trimmed, in lower case
	NodeAddrs []netip.Addr // given by hand; they replace those of the Node object
	OwnAddrs  []netip.Addr // of the machine; they count until a Node object names some

	NodePorts        []netip.Prefix // see sdk.Node
	PrimaryNodePorts bool           // also the first address of each family

	Pods         sdk.Pods
	PodsFromNode bool // the Node object's podCIDRs instead

	MasqueradeAll bool
	MasqueradeBit uint8
	ServiceCIDRs  []netip.Prefix // beside those of SetServiceCIDR
	Conntrack     sdk.ConntrackLimits

	ExternalIPs   []netip.Prefix      // see reach.Here
	NodeAddresses reach.NodeAddresses // see reach.Here
	AllowLoopback bool                // see reach.Here; only for a source that speaks for one machine

	Since time.Time // trigger times before it are not ours to measure
}

// A nodeRecord is what matters of the Node object.
type nodeRecord struct {
	zone    string
	addrs   []netip.Addr
	pods    []netip.Prefix
	refused []reach.Problem // addresses that are not used
}

func readNode(n *corev1.Node) nodeRecord {
	r := nodeRecord{zone: n.Labels[corev1.LabelTopologyZone]}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			addr, err := netip.ParseAddr(a.Address)
			if a.Type != kind || err != nil || slices.Contains(r.addrs, addr) {
				continue
			}
			if why := reach.Unusable(addr); why != "" {
				r.refused = append(r.refused, reach.Problem{Reason: reach.InvalidAddress, Message: fmt.Sprintf("node address %s %s; it is not used", addr, why)})
				continue
			}
			r.addrs = append(r.addrs, addr)
		}
	}
	cidrs := n.Spec.PodCIDRs
	if len(cidrs) == 0 && n.Spec.PodCIDR != "" {
		cidrs = []string{n.Spec.PodCIDR}
	}
	for _, text := range cidrs {
		if p, err := netip.ParsePrefix(text); err == nil {
			r.pods = append(r.pods, p.Masked())
		}
	}
	return r
}

// node returns what a dataplane must know.
func (f Facts) node(r nodeRecord) sdk.Node {
	n := sdk.Node{
		Name:          f.NodeName,
		Addrs:         r.addrs,
		NodePorts:     f.NodePorts,
		Pods:          f.Pods,
		MasqueradeAll: f.MasqueradeAll,
		MasqueradeBit: f.MasqueradeBit,
		ServiceCIDRs:  f.ServiceCIDRs,
		Conntrack:     f.Conntrack,
	}
	if len(n.Addrs) == 0 {
		n.Addrs = f.OwnAddrs
	}
	if len(f.NodeAddrs) > 0 {
		n.Addrs = f.NodeAddrs
	}
	if f.PodsFromNode {
		n.Pods = sdk.Pods{CIDRs: r.pods}
	}
	if f.PrimaryNodePorts {
		n.NodePorts = slices.Concat(f.NodePorts, primary(n.Addrs))
	}
	return n
}

// primary returns the first address of each family, as a range of one.
func primary(addrs []netip.Addr) []netip.Prefix {
	var first []netip.Prefix
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return sdk.FamilyOf(a) == family })
		if i >= 0 {
			first = append(first, netip.PrefixFrom(addrs[i], addrs[i].BitLen()))
		}
	}
	return first
}

// here returns what decisions about endpoints and frontends depend on.
func (f Facts) here(r nodeRecord, n sdk.Node) reach.Here {
	return reach.Here{
		Node:          f.NodeName,
		Zone:          r.zone,
		Addrs:         n.Addrs,
		ExternalIPs:   f.ExternalIPs,
		NodeAddresses: f.NodeAddresses,
		Reserved:      slices.Concat(n.Pods.CIDRs, f.ServiceCIDRs),
		Loopback:      f.AllowLoopback,
	}
}

// SetServiceCIDR adds or replaces a ServiceCIDR object: ranges that ClusterIPs are taken from
// (KEP-1880). No external IP in them is served, whichever Service asks for it.
func (t *Tracker) SetServiceCIDR(obj *networkingv1.ServiceCIDR) {
	var ranges []netip.Prefix
	for _, text := range obj.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p.Masked())
		}
	}
	t.admit()
	defer t.unlock()
	t.ranges[obj.Name] = ranges
	t.renode()
}

// DeleteServiceCIDR removes a ServiceCIDR object.
func (t *Tracker) DeleteServiceCIDR(name string) {
	t.admit()
	defer t.unlock()
	delete(t.ranges, name)
	t.renode()
}

// serviceCIDRs returns all the ranges that ClusterIPs are taken from, as far as known.
func (t *Tracker) serviceCIDRs() []netip.Prefix {
	all := slices.Clone(t.facts.ServiceCIDRs)
	for _, ranges := range t.ranges {
		all = append(all, ranges...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Addresses of other Nodes (reach.Here.Others) matter while a dataplane takes addresses and a Service asks for an
// external one.

// ReviewNodes uses what SetNodes said, or uses it no more, and reports whether it matters now.
func (t *Tracker) ReviewNodes() (wanted bool) {
	t.admit()
	defer t.unlock()
	wanted = t.hasExternal() && slices.ContainsFunc(t.cursors, func(c *Cursor) bool { return c.takes })
	if wanted && t.here.Others == nil {
		t.leaveOut(t.others)
	} else if !wanted && len(t.cursors) > 0 { // else its plugin is being restarted
		t.leaveOut(nil)
	}
	return wanted
}

// SetNodes sets the addresses of other Nodes from a list of all Nodes.
func (t *Tracker) SetNodes(list []corev1.Node) {
	t.admit()
	defer t.unlock()
	t.others = make(map[netip.Addr]string, len(list))
	for i := range list {
		if list[i].Name == t.facts.NodeName {
			continue
		}
		for _, addr := range readNode(&list[i]).addrs {
			t.others[addr] = list[i].Name
		}
	}
	t.leaveOut(t.others)
}

// leaveOut decides anew the Services that ask for an address which is to be left out now and was not before,
// or the other way round.
func (t *Tracker) leaveOut(others map[netip.Addr]string) {
	before := t.here.Others
	if before == nil && others == nil {
		return
	}
	t.here.Others = others
	for _, svc := range t.services {
		if svc.spec != nil && slices.ContainsFunc(slices.Concat(svc.spec.ExternalIPs, svc.spec.VIPs), func(a netip.Addr) bool { return before[a] != others[a] }) {
			t.renew(svc)
		}
	}
	for _, c := range t.cursors {
		c.signal()
	}
}

// hasExternal reports whether a Service asks for an external address.
func (t *Tracker) hasExternal() bool {
	for _, svc := range t.services {
		if svc.spec != nil && len(svc.spec.ExternalIPs)+len(svc.spec.VIPs) > 0 {
			return true
		}
	}
	return false
}

// awaitsNodes reports whether the dataplane has to wait for SetNodes: it could cut this node off from another, and
// from the API server there. A source that speaks for one machine knows no Nodes.
func (c *Cursor) awaitsNodes() bool {
	return c.takes && !c.t.facts.AllowLoopback && c.t.here.Others == nil && c.t.hasExternal()
}
