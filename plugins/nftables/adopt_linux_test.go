// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// For every scenario, a new process reads the table back as it was written, takes it over without writing, and keeps
// the role that it finds. nft can list the table.
func TestKernelAcceptsEveryScenario(t *testing.T) {
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
				if f.Planned() != sdk.Active {
					k.Errorf("%s: a new process plans for role %s", s.Name, f.Planned())
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

// TestKernelReadsTheRole checks that a process which reads only the role finds the same role as one which reads the
// whole table, and that it keeps no elements in memory.
func TestKernelReadsTheRole(t *testing.T) {
	onKernel(t, func(k kernel) {
		check := func(want sdk.Role, there bool) {
			p := k.start()
			defer p.die()
			for _, f := range p.families {
				role, err := f.Adopt(k.Context(), 0)
				if role != want || f.Ours() != there || err != nil {
					k.Errorf("Adopt without parts: %s, %t, %v; want %s, %t", role, f.Ours(), err, want, there)
				}
				if n := len(f.Installed()); n > 0 {
					k.Errorf("%d Services are in memory", n)
				}
				if role, err := f.List(k.Context()); role != want || err != nil {
					k.Errorf("List returned role %s, %v; want %s", role, err, want)
				}
			}
		}
		check(sdk.Standby, false)
		for _, role := range []sdk.Role{sdk.Standby, sdk.Active, sdk.Draining} {
			p := k.start()
			k.sync(p, sdktest.Scenarios()[0].Update(1))
			k.role(p, role)
			p.die()
			check(role, true)
		}
	})
}
