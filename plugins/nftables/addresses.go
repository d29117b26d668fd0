// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
)

// addressesEvery is how often the node's addresses are looked at.
const addressesEvery = 2 * time.Second

// addresses returns the prefixes of the node that take node ports now, in order, and the address by which it
// answers pings: the first that Kubernetes knows, if the node has it.
func (n nodeConfig) addresses() (own []netip.Prefix, self netip.Addr, err error) {
	local, err := flows.Local()
	if err != nil {
		return nil, self, err
	}
	for _, p := range local {
		if sdk.FamilyOf(p.Addr()) != n.Family {
			continue
		}
		if slices.Contains(n.node.Addrs, p.Addr()) && p.IsSingleIP() && !self.IsValid() {
			self = p.Addr()
		}
		if !frame.OnLink(p.Addr()) && (!p.Addr().IsLoopback() || n.localhost && p.IsSingleIP()) {
			own = append(own, frame.NodePortPrefixes(n.node, p)...)
		}
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	return slices.Compact(own), self, nil
}

// look takes what the kernel says of the node's addresses and default routes, and reports whether it is other than it was.
func (n *nodeConfig) look() (changed bool, err error) {
	own, self, err := n.addresses()
	if err != nil {
		return false, err
	}
	uplinks, err := flows.Uplinks(n.Family)
	if err != nil { // no Service waits for them: the next look asks again
		uplinks = n.uplinks
	}
	changed = !slices.Equal(own, n.own) || self != n.self || !slices.EqualFunc(uplinks, n.uplinks, flows.Uplink.Equal)
	n.own, n.self, n.uplinks = own, self, uplinks
	return changed, nil
}

// moved reports whether other addresses take node ports than was known.
func (f *family) moved() bool {
	if time.Since(f.addressed) < addressesEvery {
		return false
	}
	f.addressed = time.Now()
	changed, err := f.node.look()
	if err != nil {
		f.log.Warn("cannot see the node's addresses and default routes", "err", err)
		return false
	}
	if changed {
		f.log.Info("the node has other addresses or default routes", "family", f.node.Family, "addresses", len(f.node.own))
		f.Refix()
	}
	return changed
}
