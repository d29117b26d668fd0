// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// For every scenario, a new process finds the role without reading elements, reads the table back as it was written,
// takes it over without writing, and keeps the role. nft can list the table.
func TestKernelAcceptsEveryScenario(t *testing.T) {
	onKernel(t, func(k kernel) {
		for i, s := range sdktest.Scenarios() {
			role := []sdk.Role{sdk.Active, sdk.Draining, sdk.Standby}[i%3]
			p := k.start()
			k.sync(p, s.Update(1))
			k.role(p, role)
			p.die()

			next := k.start()
			err := next.Do(k.Context(), func(map[sdk.Name]sdk.Service) error {
				for _, f := range next.families {
					if shown, err := f.Adopt(k.Context(), 0); shown != role || !f.Ours() || len(f.Installed()) > 0 || err != nil {
						k.Errorf("%s: Adopt without parts: %s, %t, %d Services, %v; want %s", s.Name, shown, f.Ours(), len(f.Installed()), err, role)
					}
				}
				return nil
			})
			if err != nil {
				k.Fatal(err)
			}
			k.sync(next, s.Update(1))
			for _, f := range next.families {
				if n := f.kernel.commits.Load(); n > 0 && k.protect == "never" || n > 2 {
					k.Errorf("%s: a new process wrote %d batches", s.Name, n)
				}
				if f.Planned() != role {
					k.Errorf("%s: a new process plans for role %s, want %s", s.Name, f.Planned(), role)
				}
			}
			k.checkListing()
			if _, err := next.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
				k.Fatal(err)
			}
			next.die()
		}
	})
}
