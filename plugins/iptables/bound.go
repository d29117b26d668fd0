// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/sdk"
)

// ipvsDevice carries the addresses that an ipvs dataplane binds. The kernel takes them
// for the node's own, and yet they take no node ports: they are Services'.
const ipvsDevice = "kube-ipvs0"

// addressesEvery is how often the node's addresses are looked at.
const addressesEvery = 2 * time.Second

// bound are the addresses of family on ipvsDevice that no other device has: as the
// ranges of ClusterIPs, where one holds them, since there may be thousands.
func bound(family sdk.Family, clusterIPs []netip.Prefix) ([]netip.Prefix, error) {
	device, err := net.InterfaceByName(ipvsDevice)
	if err != nil {
		return nil, nil // mostly there is none
	}
	here, err := addrsOf(device.Addrs)
	if err != nil || len(here) == 0 {
		return nil, err
	}
	everywhere, err := addrsOf(net.InterfaceAddrs)
	if err != nil {
		return nil, err
	}
	return ranges(family, clusterIPs, here, everywhere), nil
}

// ranges are the addresses here that are not more often everywhere.
func ranges(family sdk.Family, clusterIPs []netip.Prefix, here, everywhere map[netip.Addr]int) []netip.Prefix {
	found := make(map[netip.Prefix]bool)
	for addr, times := range here {
		if sdk.FamilyOf(addr) != family || duty.OnLink(addr) || everywhere[addr] > times {
			continue
		}
		of := netip.PrefixFrom(addr, addr.BitLen())
		if i := slices.IndexFunc(clusterIPs, func(p netip.Prefix) bool { return p.Contains(addr) }); i >= 0 {
			of = clusterIPs[i].Masked()
		}
		found[of] = true
	}
	return sortedPrefixes(found)
}

// addrsOf are the addresses that list lists, and how often it does.
func addrsOf(list func() ([]net.Addr, error)) (map[netip.Addr]int, error) {
	listed, err := list()
	if err != nil {
		return nil, fmt.Errorf("list the node's addresses: %w", err)
	}
	all := make(map[netip.Addr]int, len(listed))
	for _, a := range listed {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all[p.Addr()]++
		}
	}
	return all, nil
}

func sortedPrefixes(set map[netip.Prefix]bool) []netip.Prefix {
	all := make([]netip.Prefix, 0, len(set))
	for p := range set {
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
	return all
}

// followAddresses writes the ways to node ports anew when other addresses are bound.
func (p *plugin) followAddresses(ctx context.Context) {
	if time.Since(p.addressed) < addressesEvery {
		return
	}
	p.addressed = time.Now()
	for _, s := range p.sides {
		if !s.Known() || !s.Complete() {
			continue // the next Sync looks anyway
		}
		now, err := bound(s.Family(), p.state.Node.ServiceCIDRs)
		if err != nil {
			p.log.Warn("cannot see which addresses take node ports", "err", err)
			return
		}
		if slices.Equal(now, s.node.bound) {
			continue
		}
		p.log.Info("other addresses are bound by ipvs", "family", s.Family(), "ranges", len(now))
		n := s.node
		n.bound = now
		s.setNode(n)
		if _, err := s.sync(ctx, nil, p.role); err != nil {
			p.log.Warn("cannot write which addresses take node ports", "err", err) // the next Sync reads everything
		}
	}
}

// bound reports whether an ipvs dataplane bound addr, as far as anybody looked.
func (p *plugin) bound(addr netip.Addr) bool {
	return slices.ContainsFunc(p.sides, func(s *side) bool {
		return slices.ContainsFunc(s.node.bound, func(r netip.Prefix) bool { return r.Contains(addr) })
	})
}
