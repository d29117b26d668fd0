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

// moved reports whether other addresses take node ports than was known.
func (f *family) moved() bool {
	if time.Since(f.addressed) < addressesEvery {
		return false
	}
	f.addressed = time.Now()
	now, self, err := f.node.addresses()
	if err != nil {
		f.log.Warn("cannot see which addresses take node ports", "err", err)
		return false
	}
	if slices.Equal(now, f.node.own) && self == f.node.self {
		return false
	}
	f.log.Info("other addresses take node ports", "family", f.node.Family, "addresses", len(now))
	f.node.own, f.node.self = now, self
	f.Reshape()
	return true
}
