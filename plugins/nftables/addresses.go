// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
)

// ipvsDevice carries the addresses that an ipvs dataplane binds: they are Services'.
const ipvsDevice = "kube-ipvs0"

// addressesEvery is how often the node's addresses are looked at.
const addressesEvery = 2 * time.Second

// addresses are those of the node that take node ports now, in order, and the one by which it
// answers pings: the first that Kubernetes knows, if the node has it.
func (n nodeConfig) addresses() (own []netip.Addr, self netip.Addr, err error) {
	everywhere, err := flows.Addrs(net.InterfaceAddrs)
	if err != nil {
		return nil, self, err
	}
	if device, err := net.InterfaceByName(ipvsDevice); err == nil {
		bound, err := flows.Addrs(device.Addrs)
		if err != nil {
			return nil, self, err
		}
		for addr, times := range bound {
			everywhere[addr] -= times
		}
	}
	for _, addr := range n.node.Addrs {
		if everywhere[addr] > 0 && sdk.FamilyOf(addr) == n.Family && !self.IsValid() {
			self = addr
		}
	}
	for addr, times := range everywhere {
		ours := times > 0 && sdk.FamilyOf(addr) == n.Family && n.node.TakesNodePorts(addr)
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

const (
	netfilter     = sysctl.Folder + "net/netfilter/"
	routeLocalnet = sysctl.Folder + "net/ipv4/conf/all/route_localnet"
)

// settings are the kernel's parameters that a node asks for. The guard stands before the kernel
// routes 127.0.0.0/8: the frame sets them after what is written, and gives them back before.
func (o options) settings(n sdk.Node) sysctl.Settings {
	all := sysctl.Conntrack(sysctl.Folder, n.Conntrack)
	if o.localhost(sdk.IPv4, n) {
		all = append(all, sysctl.Setting{Path: routeLocalnet, Value: "1", Must: true})
	}
	return all
}

// liberal reports whether the kernel takes TCP packets outside the window for valid.
func liberal() bool {
	value, err := os.ReadFile(netfilter + "nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(value)) != "0"
}
