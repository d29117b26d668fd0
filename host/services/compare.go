// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/sdk"
)

// Differences returns an error that names the frontends of the Services that are not served as
// specified, or nil. It ignores unexpected frontends: they may belong to Services that failed or
// are withheld, and a swap does not depend on them.
func Differences(services []sdk.Service, found map[sdk.Name][]sdk.Served) error {
	var all []string
	for _, s := range services {
		for _, row := range Compare(s, found[s.Name])[:len(s.Frontends)] {
			if row.Differs != "" {
				all = append(all, fmt.Sprintf("%s of %s: %s; served now: %s", row.Frontend, s.Name, row.Differs, phrase.Some(row.Endpoints)))
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	text := phrase.Some(all)
	if len(found) == 0 {
		text += "; Inspect names no frontend: in Standby a dataplane must name those that it would serve when Active"
	}
	return fmt.Errorf("the kernel does not serve what was sent: %s", text)
}

// Compare compares s with the frontends in found, which a dataplane has read. It returns a row for each frontend of s,
// and then one for each superfluous frontend.
func Compare(s sdk.Service, found []sdk.Served) []admin.Programmed {
	list := []admin.Programmed{}
	for _, f := range s.Frontends {
		row := admin.Programmed{Frontend: f.String(), Endpoints: []string{}}
		want := distinct(s.Endpoints(f.Policy), func(ep sdk.Endpoint) netip.AddrPort { return ep.Addr })
		i := slices.IndexFunc(found, func(o sdk.Served) bool {
			return o.Frontend.Kind == f.Kind && o.Frontend.Addr == f.Addr && o.Frontend.Policy == f.Policy
		})
		if i < 0 {
			row.Differs = "it is missing"
			list = append(list, row)
			continue
		}
		got := distinct(found[i].Endpoints, func(addr netip.AddrPort) netip.AddrPort { return addr })
		row.Endpoints = phrase.Texts(got)
		if !slices.Equal(got, want) {
			row.Differs = "expected: " + phrase.List(phrase.Texts(want))
		}
		list = append(list, row)
	}
	for _, o := range found {
		if !slices.ContainsFunc(s.Frontends, func(f sdk.Frontend) bool { return f.Kind == o.Frontend.Kind && f.Addr == o.Frontend.Addr }) {
			list = append(list, admin.Programmed{Frontend: o.Frontend.String(), Endpoints: phrase.Texts(o.Endpoints), Differs: "it is unexpected"})
		}
	}
	return list
}

// distinct returns the distinct addresses of a list, sorted.
func distinct[T any](list []T, addr func(T) netip.AddrPort) []netip.AddrPort {
	addrs := make([]netip.AddrPort, 0, len(list))
	for _, item := range list {
		addrs = append(addrs, addr(item))
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return slices.Compact(addrs)
}
