// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// A plugin that has followed many changes, none of which was an update of everything, has
// as much memory as before, some time later.
func TestMemoryAfterManyChanges(t *testing.T) {
	plugin := build(t, "./test/keeper")
	remote := launched(t, plugin)
	if _, err := remote.Configure(t.Context(), sdk.Setup{}); err != nil {
		t.Fatal(err)
	}
	all := make([]sdk.Service, 10_000)
	for i := range all {
		all[i] = manyEnds(i, 10)
	}
	u := sdk.Update{To: 1, Full: true, Node: &sdk.Node{}, Set: all}
	sync := func() {
		if _, err := remote.Sync(t.Context(), u); err != nil {
			t.Fatal(err)
		}
	}
	sync()
	before := memory(t, remote.Hello().PID, "VmRSS:")
	for round := range 60 {
		u = sdk.Update{From: u.To, To: u.To + 1}
		for i := range 900 { // fewer than are worth a collection of their own
			n := (round*900 + i) % len(all)
			u.Set = append(u.Set, manyEnds(n, byte(11+round%50)))
		}
		sync()
	}
	most := memory(t, remote.Hello().PID, "VmRSS:")
	var after int
	eventually.Succeeds(t, "the plugin gives memory back", func() error {
		if after = memory(t, remote.Hello().PID, "VmRSS:"); after*10 > before*13 {
			return fmt.Errorf("after many changes it has %d KB, and %d KB before: %.2f times as much", after, before, float64(after)/float64(before))
		}
		return nil
	})
	t.Logf("resident: %d KB before, %d KB with the last change, %d KB after", before, most, after)
}

// manyEnds is Service number i with ten endpoints whose addresses begin with first.
func manyEnds(i int, first byte) sdk.Service {
	svc := sdk.Service{
		Name:      sdk.Name{Namespace: "ns", Service: fmt.Sprintf("service-%d", i), Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{172, 16, byte(i >> 8), byte(i)}), 80)}},
	}
	for e := range 10 {
		svc.Cluster = append(svc.Cluster, sdk.Endpoint{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{first, byte(e), byte(i >> 8), byte(i)}), 8080)})
	}
	return svc
}
