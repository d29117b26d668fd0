// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// An Addr is one of this machine's addresses.
type Addr struct {
	IP     netip.Addr
	Device string
}

// heldByDataplanes begins the names of devices that dataplanes make for addresses
// of Services. They are no addresses of the node.
const heldByDataplanes = "kube-ipvs"

func machineAddrs() []Addr {
	devices, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var all []Addr
	for _, d := range devices {
		list, err := d.Addrs()
		if err != nil {
			continue // it went away
		}
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				all = append(all, Addr{p.Addr().Unmap(), d.Name})
			}
		}
	}
	return all
}

// where says on which addresses node ports are answered: one wildcard where every
// address of a family takes them, each by itself where some do.
func where(node sdk.Node, machine []Addr) []netip.Addr {
	var wild4, wild6 bool
	for _, p := range node.NodePorts {
		wild4 = wild4 || p.Bits() == 0 && p.Addr().Is4()
		wild6 = wild6 || p.Bits() == 0 && p.Addr().Is6()
	}
	var list []netip.Addr
	if wild4 {
		list = append(list, netip.IPv4Unspecified())
	}
	if wild6 && slices.ContainsFunc(machine, func(a Addr) bool { return a.IP.Is6() }) {
		list = append(list, netip.IPv6Unspecified())
	}
	for _, a := range machine {
		covered := wild4 && a.IP.Is4() || wild6 && a.IP.Is6()
		usable := !(a.IP.Is6() && a.IP.IsLinkLocalUnicast()) && !strings.HasPrefix(a.Device, heldByDataplanes)
		if !covered && usable && node.TakesNodePorts(a.IP) && !slices.Contains(list, a.IP) {
			list = append(list, a.IP)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}
