// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"maps"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestDrops adds up reports, each with what the reporting mode counts then: the totals never go backwards, and count
// nothing twice.
func TestDrops(t *testing.T) {
	var d drops
	none := func(family sdk.Family, n uint64) sdk.Drops {
		return sdk.Drops{Reason: sdk.DropNoEndpoint, Family: family, Packets: n}
	}
	foreign := sdk.Drops{Reason: sdk.DropForeignPort, Family: sdk.IPv4, Packets: 9}
	for _, c := range []struct {
		what, mode string
		report     []sdk.Drops
		want       map[string]uint64
	}{
		{"what was counted before the host", "nftables", []sdk.Drops{none(sdk.IPv4, 5), none(sdk.IPv6, 2), foreign}, map[string]uint64{sdk.DropNoEndpoint: 7, sdk.DropForeignPort: 9}},
		{"growth", "nftables", []sdk.Drops{none(sdk.IPv4, 6), none(sdk.IPv6, 2), foreign}, map[string]uint64{sdk.DropNoEndpoint: 8, sdk.DropForeignPort: 9}},
		{"a process that has not read", "nftables", nil, map[string]uint64{}},
		{"a restart", "nftables", []sdk.Drops{none(sdk.IPv4, 7), none(sdk.IPv6, 2), foreign}, map[string]uint64{sdk.DropNoEndpoint: 9, sdk.DropForeignPort: 9}},
		{"rules of one family that were made anew", "nftables", []sdk.Drops{none(sdk.IPv4, 1), none(sdk.IPv6, 2), foreign}, map[string]uint64{sdk.DropNoEndpoint: 10, sdk.DropForeignPort: 9}},
		{"another mode, which counts less", "iptables", []sdk.Drops{none(sdk.IPv4, 3)}, map[string]uint64{sdk.DropNoEndpoint: 13}},
		{"one that counts nothing", "ipvs", nil, map[string]uint64{}},
		{"the first again, with new rules", "nftables", []sdk.Drops{none(sdk.IPv4, 0), none(sdk.IPv6, 0)}, map[string]uint64{sdk.DropNoEndpoint: 13}},
	} {
		d.add(c.mode, c.report)
		if got := d.of(c.report); !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, not %v", c.what, got, c.want)
		}
	}
}
