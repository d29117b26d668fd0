// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

const (
	netfilter     = duty.Folder + "net/netfilter/"
	routeLocalnet = duty.Folder + "net/ipv4/conf/all/route_localnet"
)

// settings are the kernel's parameters that n asks for.
func settings(n sdk.Node, localhost bool) duty.Settings {
	all := duty.Conntrack(duty.Folder, n.Conntrack)
	if localhost {
		all = append(all, duty.Setting{Path: routeLocalnet, Value: "1", Must: true})
	}
	return all
}

// sysctls sets the parameters, or checks them when somebody else sets them.
func (p *plugin) sysctls() error {
	all := settings(p.state.Node, p.localhost())
	if p.setup.Sysctls == sdk.ExpectSysctls {
		return all.Expect()
	}
	return all.Take(p.ledger, mode, p.log)
}

// unset gives back the parameters that the node no longer asks for. It goes before
// the rules: while the kernel routes 127.0.0.0/8, the guard must stand.
func (p *plugin) unset() error {
	if p.lock == nil || p.setup.Sysctls == sdk.ExpectSysctls {
		return nil
	}
	return settings(p.state.Node, p.localhost()).Release(p.ledger, mode, p.log)
}

func (p *plugin) localhost() bool {
	return slices.ContainsFunc(p.sides, func(s *side) bool { return s.node.localhost })
}

// liberal reports whether the kernel takes TCP packets outside the window for
// valid. Then none need be dropped.
func liberal() bool {
	value, err := os.ReadFile(netfilter + "nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(value)) != "0"
}
