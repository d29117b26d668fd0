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

// Facts are what the operator configured about this node. What Kubernetes knows about it comes
// with SetNode.
type Facts struct {
	NodeName  string       // as in an endpoint's nodeName: trimmed, in lower case
	NodeAddrs []netip.Addr // configured; they replace the addresses of the Node object
	OwnAddrs  []netip.Addr // of the machine; used until the Node object has addresses

	NodePorts        []netip.Prefix // see sdk.Node
	PrimaryNodePorts bool           // also accept node ports at the first node address of each family

	Pods         sdk.Pods
	PodsFromNode bool // use the Node object's podCIDRs instead of Pods

	MasqueradeAll bool
	MasqueradeBit uint8
	ServiceCIDRs  []netip.Prefix // in addition to those from SetServiceCIDR
	Conntrack     sdk.ConntrackLimits

	ExternalIPs   []netip.Prefix      // see reach.ThisNode
	NodeAddresses reach.NodeAddresses // see reach.ThisNode
	AllowLoopback bool                // see reach.ThisNode; only for sources that describe one machine

	Since time.Time // ignore trigger times before this: those changes were made before we started
}

// A nodeRecord holds the fields of the Node object that we use.
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

// node returns what dataplanes must know about this node.
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

// primary returns the first address of each family, as a /32 or /128.
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

// thisNode returns the facts on which the choice of endpoints and frontends depends.
func (f Facts) thisNode(r nodeRecord, n sdk.Node) reach.ThisNode {
	return reach.ThisNode{
		Node:          f.NodeName,
		Zone:          r.zone,
		Addrs:         n.Addrs,
		ExternalIPs:   f.ExternalIPs,
		NodeAddresses: f.NodeAddresses,
		Reserved:      slices.Concat(n.Pods.CIDRs, f.ServiceCIDRs),
		Loopback:      f.AllowLoopback,
	}
}

// SetServiceCIDR adds or replaces a ServiceCIDR object (KEP-1880). Its ranges hold the
// cluster's ClusterIPs, so external IPs in these ranges are refused for every Service.
func (t *Tracker) SetServiceCIDR(obj *networkingv1.ServiceCIDR) {
	var ranges []netip.Prefix
	for _, text := range obj.Spec.CIDRs {
		if p, err := netip.ParsePrefix(text); err == nil {
			ranges = append(ranges, p.Masked())
		}
	}
	t.lockForChange()
	defer t.unlock()
	t.ranges[obj.Name] = ranges
	t.refreshNode()
}

// DeleteServiceCIDR removes a ServiceCIDR object.
func (t *Tracker) DeleteServiceCIDR(name string) {
	t.lockForChange()
	defer t.unlock()
	delete(t.ranges, name)
	t.refreshNode()
}

// serviceCIDRs returns all known ranges of ClusterIPs, configured and from ServiceCIDR objects.
func (t *Tracker) serviceCIDRs() []netip.Prefix {
	all := slices.Clone(t.facts.ServiceCIDRs)
	for _, ranges := range t.ranges {
		all = append(all, ranges...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// Addresses of other Nodes (reach.ThisNode.Others) are needed only while a dataplane takes over
// whole addresses (sdk.LimitTakesAddresses) and some Service has an external address.

// ReviewNodes starts or stops using the addresses from SetNodes, and reports whether they are
// needed. If not, the source can stop listing Nodes.
func (t *Tracker) ReviewNodes() (wanted bool) {
	t.lockForChange()
	defer t.unlock()
	wanted = t.hasExternal() && slices.ContainsFunc(t.cursors, func(c *Cursor) bool { return c.takesAddrs })
	if wanted && t.thisNode.Others == nil {
		t.setOthers(t.others)
	} else if !wanted && len(t.cursors) > 0 { // without cursors the plugin is restarting, and the addresses may be needed again
		t.setOthers(nil)
	}
	return wanted
}

// SetNodes sets the addresses of other Nodes from a list of all Nodes.
func (t *Tracker) SetNodes(list []corev1.Node) {
	t.lockForChange()
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
	t.setOthers(t.others)
}

// setOthers sets the addresses of other Nodes and refreshes the Services with an external
// address that became or is no longer one of them.
func (t *Tracker) setOthers(others map[netip.Addr]string) {
	before := t.thisNode.Others
	if before == nil && others == nil {
		return
	}
	t.thisNode.Others = others
	for _, svc := range t.services {
		if svc.spec != nil && slices.ContainsFunc(slices.Concat(svc.spec.ExternalIPs, svc.spec.VIPs), func(a netip.Addr) bool { return before[a] != others[a] }) {
			t.refreshService(svc)
		}
	}
	for _, c := range t.cursors {
		c.signal()
	}
}

// hasExternal reports whether any Service has an external address.
func (t *Tracker) hasExternal() bool {
	for _, svc := range t.services {
		if svc.spec != nil && len(svc.spec.ExternalIPs)+len(svc.spec.VIPs) > 0 {
			return true
		}
	}
	return false
}

// awaitsNodes reports whether the dataplane must not be sent anything before SetNodes.
// Otherwise it could take the address of another Node and cut this node off from it, and from
// an API server there. Sources that describe one machine have no Nodes to wait for.
func (c *Cursor) awaitsNodes() bool {
	return c.takesAddrs && !c.t.facts.AllowLoopback && c.t.thisNode.Others == nil && c.t.hasExternal()
}
