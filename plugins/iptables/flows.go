// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/flows"
)

// takesNodePorts returns a function that reports whether an address takes node ports. It uses the node's
// present addresses.
func (f *family) takesNodePorts() (func(netip.Addr) bool, error) {
	local, err := flows.Local()
	return func(a netip.Addr) bool {
		node := &f.rules.node
		return node.node.TakesNodePorts(a) && !node.isBound(a) && slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Contains(a) })
	}, err
}
