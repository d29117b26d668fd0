// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// ipvsDevice carries the addresses that an ipvs dataplane binds: they are Services'.
const ipvsDevice = "kube-ipvs0"

// addressesEvery is how often the node's addresses are looked at.
const addressesEvery = 2 * time.Second

// addresses are those of the node that take node ports now, in order.
func (n nodeConfig) addresses() ([]netip.Addr, error) {
	bound, err := bound()
	if err != nil {
		return nil, err
	}
	listed, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	var all []netip.Addr
	for _, a := range listed {
		p, err := netip.ParsePrefix(a.String())
		if err != nil {
			continue
		}
		addr := p.Addr()
		if bound[addr] > 0 {
			bound[addr]--
			continue
		}
		loopback := addr.IsLoopback() && !n.localhost
		if sdk.FamilyOf(addr) == n.Family && n.node.TakesNodePorts(addr) && !loopback && !duty.OnLink(addr) {
			all = append(all, addr)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all), nil
}

// bound are the addresses on ipvsDevice, and how often each is there.
func bound() (map[netip.Addr]int, error) {
	device, err := net.InterfaceByName(ipvsDevice)
	if err != nil {
		return nil, nil // mostly there is none
	}
	listed, err := device.Addrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of %s: %w", ipvsDevice, err)
	}
	all := make(map[netip.Addr]int, len(listed))
	for _, a := range listed {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all[p.Addr()]++
		}
	}
	return all, nil
}

const (
	netfilter     = duty.Folder + "net/netfilter/"
	routeLocalnet = duty.Folder + "net/ipv4/conf/all/route_localnet"
)

// settings are the kernel's parameters that a node asks for. The guard stands before the kernel
// routes 127.0.0.0/8: the frame sets them after what is written, and gives them back before.
func (o options) settings(n sdk.Node) duty.Settings {
	all := duty.Conntrack(duty.Folder, n.Conntrack)
	if o.localhost(sdk.IPv4, n) {
		all = append(all, duty.Setting{Path: routeLocalnet, Value: "1", Must: true})
	}
	return all
}

// liberal reports whether the kernel takes TCP packets outside the window for valid.
func liberal() bool {
	value, err := os.ReadFile(netfilter + "nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(value)) != "0"
}
