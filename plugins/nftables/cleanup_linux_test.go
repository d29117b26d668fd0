// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// Another process cleans up while the writer lives on, also where the writer owns the table:
// it finds the mark, gives the table up, and stands down. It serves again when a host says so.
func TestKernelStandsDownWhenAnotherCleansUp(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		k.nft("add", "table", "ip", "kube-proxy")
		s := k.parsed(g, sticking)
		p, _ := k.active(g, s)
		gone, err := New(k.dir).Cleanup(k.Context(), sdk.Leftovers{KubeProxy: true})
		want := []string{"nft: remove table ip pointsman", "nft: remove table ip kube-proxy", "nft: remove table ip6 pointsman"}
		if err != nil || !slices.Equal(gone[:min(3, len(gone))], want) {
			k.Fatalf("removed %q, %v", gone, err)
		}
		successor := k.start()
		eventually.True(k, "the writer stands down", func() bool {
			result, err := successor.Sync(k.Context(), s.Update(1))
			return err == nil && !result.Planned
		})
		successor.die()
		k.sync(p, sdk.Update{From: 1, To: 2})
		k.role(p, sdk.Active)
		if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Error(err)
		}
	})
}
