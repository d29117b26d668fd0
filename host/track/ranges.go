// SPDX-License-Identifier: Apache-2.0

package track

import (
	"net/netip"
	"slices"

	networkingv1 "k8s.io/api/networking/v1"
)

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
