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

// addressesEvery is the interval at which checkAddrs reads the node's addresses.
const addressesEvery = 2 * time.Second

// addresses returns the prefixes of the node that now take node ports, sorted.
func (n nodeConfig) addresses() (own []netip.Prefix, err error) {
	local, err := flows.Local()
	if err != nil {
		return nil, err
	}
	for _, p := range local {
		if sdk.FamilyOf(p.Addr()) != n.Family {
			continue
		}
		if !frame.OnLink(p.Addr()) && (!p.Addr().IsLoopback() || n.localhost && p.IsSingleIP()) {
			own = append(own, frame.NodePortPrefixes(n.node, p)...)
		}
	}
	slices.SortFunc(own, netip.Prefix.Compare)
	return slices.Compact(own), nil
}

// readAddrs reads the node's addresses and default routes from the kernel and reports whether they changed.
func (n *nodeConfig) readAddrs() (changed bool, err error) {
	own, err := n.addresses()
	if err != nil {
		return false, err
	}
	uplinks, err := flows.Uplinks(n.Family)
	if err != nil { // no Service depends on them: the next call reads them again
		uplinks = n.uplinks
	}
	changed = !slices.Equal(own, n.own) || !slices.EqualFunc(uplinks, n.uplinks, flows.Uplink.Equal)
	n.own, n.uplinks = own, uplinks
	return changed, nil
}

// checkAddrs reports whether the node's addresses or default routes have changed.
func (f *family) checkAddrs() bool {
	if time.Since(f.addrsReadAt) < addressesEvery {
		return false
	}
	f.addrsReadAt = time.Now()
	changed, err := f.node.readAddrs()
	if err != nil {
		f.log.Warn("cannot read the node's addresses and default routes", "err", err)
		return false
	}
	if changed {
		f.log.Info("the node's addresses or default routes have changed", "family", f.node.Family, "addresses", len(f.node.own))
		f.Refix()
	}
	return changed
}
