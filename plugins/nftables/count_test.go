// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/nftable"
	"github.com/pointsman/pointsman/sdk"
)

// However many endpoints were called, those with the most connections are reported, the most
// first.
func TestMostCounted(t *testing.T) {
	counts := make(map[string]uint64)
	for i := range 300 {
		at := netip.AddrPortFrom(netip.MustParseAddr("fd00::1"), uint16(8000+i))
		counts[nftable.Key(sdk.UDP, at)] = uint64(i % 150)
	}
	all := ipOf(sdk.IPv6).busiest(ipOf(sdk.IPv6).counted(counts))
	if len(all) != mostReported || all[0].Value != 149 || all[99].Value != 100 {
		t.Fatalf("%d: %v", len(all), all)
	}
	if l := all[0].Labels; l["ip_family"] != "IPv6" || l["protocol"] != "udp" || l["endpoint"] != "[fd00::1]:8149" {
		t.Errorf("the first is %v", l)
	}
}
