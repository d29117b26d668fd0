// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// What every scenario needs is read back as it was written: a new process takes it over and
// writes nothing, in the role that it finds. And nft lists it.
func TestKernelTakesEveryScenario(t *testing.T) {
	onKernel(t, func(k kernel) {
		for _, s := range sdktest.Scenarios() {
			p := k.start()
			k.sync(p, s.Update(1))
			k.role(p, sdk.Active)
			p.die()

			next := k.start()
			k.sync(next, s.Update(1))
			for _, f := range next.families {
				if n := f.kernel.commits.Load(); n > 0 && k.protect == "never" || n > 2 {
					k.Errorf("%s: a new process wrote %d batches", s.Name, n)
				}
				if f.role != sdk.Active {
					k.Errorf("%s: a new process took the role for %s", s.Name, f.role)
				}
			}
			k.lists()
			if _, err := next.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
				k.Fatal(err)
			}
			next.die()
		}
	})
}
