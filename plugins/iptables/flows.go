// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// Forget ends UDP flows to these Services that lead nowhere.
func (f *family) Forget(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes, err := f.takesNodePorts()
	if err != nil {
		return 0, err
	}
	return conntrack.Forget(of, conntrack.Serving(of, services, takes).Telling(step))
}

// ForgetEarly deletes connections to these Services that began before they were there.
func (f *family) ForgetEarly(of sdk.Family, services []sdk.Service, step func()) (int, error) {
	takes, err := f.takesNodePorts()
	if err != nil {
		return 0, err
	}
	return conntrack.ForgetEarly(of, services, takes, step)
}

// takesNodePorts returns whether an address takes node ports now.
func (f *family) takesNodePorts() (func(netip.Addr) bool, error) {
	local, err := flows.Local()
	return func(a netip.Addr) bool {
		node := &f.rules.node
		return node.node.TakesNodePorts(a) && !node.isBound(a) && slices.ContainsFunc(local, func(p netip.Prefix) bool { return p.Contains(a) })
	}, err
}

// Flows are what is left of the connections that were established when this dataplane began
// to drain.
func (f *family) Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error) {
	return f.draining.Count(f.rules.Family(), services, fresh)
}
