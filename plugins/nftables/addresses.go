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

// addresses are those of the node that take node ports now, in order, and the one by which it
// answers pings: the first that Kubernetes knows, if the node has it.
func (n nodeConfig) addresses() (own []netip.Addr, self netip.Addr, err error) {
	all, err := flows.Own()
	if err != nil {
		return nil, self, err
	}
	for _, addr := range n.node.Addrs {
		if all[addr] > 0 && sdk.FamilyOf(addr) == n.Family && !self.IsValid() {
			self = addr
		}
	}
	for addr := range all {
		ours := sdk.FamilyOf(addr) == n.Family && n.node.TakesNodePorts(addr)
		if ours && !frame.OnLink(addr) && (n.localhost || !addr.IsLoopback()) {
			own = append(own, addr)
		}
	}
	slices.SortFunc(own, netip.Addr.Compare)
	return own, self, nil
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
	if slices.Equal(now, f.own) && self == f.node.self {
		return false
	}
	f.log.Info("other addresses take node ports", "family", f.node.Family, "addresses", len(now))
	f.own, f.node.self = now, self
	f.Reshape()
	return true
}
