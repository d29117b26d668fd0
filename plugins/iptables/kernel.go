// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

const (
	netfilter     = sysctl.Folder + "net/netfilter/"
	routeLocalnet = sysctl.Folder + "net/ipv4/conf/all/route_localnet"
)

// settingsFor are the kernel's parameters that a node asks for, where these families are
// served. While the kernel routes 127.0.0.0/8 the guard must stand: the frame sets them after
// the rules, and gives them back before.
func settingsFor(families []*family) func(sdk.Node) sysctl.Settings {
	return func(n sdk.Node) sysctl.Settings {
		all := sysctl.Conntrack(sysctl.Folder, n.Conntrack)
		if slices.ContainsFunc(families, func(f *family) bool { return f.options.LocalhostNodePorts && localhost(f.rules.Family(), n) }) {
			all = append(all, sysctl.Setting{Path: routeLocalnet, Value: "1", Must: true})
		}
		return all
	}
}

// localhost reports whether node ports are to be had on 127.0.0.1. IPv6 has no
// way to do it.
func localhost(f sdk.Family, n sdk.Node) bool {
	return f == sdk.IPv4 && n.TakesNodePorts(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// liberal reports whether the kernel takes TCP packets outside the window for
// valid. Then none need be dropped.
func liberal() bool {
	value, err := os.ReadFile(netfilter + "nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(value)) != "0"
}
