// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// From any scenario to any other, by one update, the kernel's tables end where a
// fresh start would: also when the process dies on the way, and when another program
// empties the tables.
func TestKernelWalksFromAnyScenarioToAnyOther(t *testing.T) {
	onKernel(t, func(k kernel) {
		random := rand.New(rand.NewPCG(5, 6))
		scenarios := sdktest.Scenarios()
		p := k.start()
		now := scenarios[0]
		k.sync(p, now.Update(1))
		k.role(p, sdk.Active)
		revision := uint64(1)
		for i := range 60 {
			next := scenarios[random.IntN(len(scenarios))]
			u := step(now, next, revision)
			switch {
			case i%20 == 19: // it died, and another takes over
				p.die()
				p = k.start()
				u = next.Update(u.To)
			case i%20 == 9: // another program emptied the tables, and the host asks for all
				k.flush()
				u = next.Update(u.To)
			}
			k.sync(p, u)
			if i%20 == 9 {
				k.role(p, sdk.Active)
			}
			k.Run(fmt.Sprintf("%d %s to %s", i, now.Name, next.Name), func(t *testing.T) {
				kernel{t, k.backend, k.dir}.want(next, sdk.Active)
			})
			now, revision = next, u.To
		}
	})
}

// step is the update that leads from one scenario to another.
func step(from, to sdktest.Scenario, revision uint64) sdk.Update {
	u := sdk.Update{From: revision, To: revision + 1, Node: &to.Node, Set: to.Services}
	for _, svc := range from.Services {
		if !slices.ContainsFunc(to.Services, func(s sdk.Service) bool { return s.Name == svc.Name }) {
			u.Delete = append(u.Delete, svc.Name)
		}
	}
	return u
}

// fated is a restore that ends as the file FATE says: before it reads, after its
// first block, or when all is done.
const fated = `fate=$(cat FATE 2>/dev/null); rm -f FATE
case "$fate" in
before) kill -9 $$;;
half) awk '{print} /^COMMIT/ {exit}' | REAL "$@"; kill -9 $$;;
after) REAL "$@"; kill -9 $$;;
esac
exec REAL "$@"`

// The same walk, with the program killed at random points, and the process with it.
// The next one finds what is there and ends where it should.
func TestKernelWalksThoughKilled(t *testing.T) {
	onKernel(t, func(k kernel) {
		random := rand.New(rand.NewPCG(9, 10))
		scenarios := sdktest.Scenarios()
		fate := filepath.Join(k.TempDir(), "fate")
		defer k.instead(strings.ReplaceAll(fated, "FATE", fate))()
		p := k.start()
		now, revision, killed := scenarios[0], uint64(1), 0
		k.sync(p, now.Update(1))
		k.role(p, sdk.Active)
		for range 30 {
			next := scenarios[random.IntN(len(scenarios))]
			u := step(now, next, revision)
			if err := os.WriteFile(fate, []byte([]string{"", "before", "half", "after"}[random.IntN(4)]), 0o600); err != nil {
				k.Fatal(err)
			}
			if _, err := p.Sync(k.Context(), u); err != nil {
				killed++
				if random.IntN(2) == 0 { // the process as well
					p.die()
					p = k.start()
					u = next.Update(u.To)
				}
				k.sync(p, u)
			}
			k.want(next, sdk.Active)
			now, revision = next, u.To
		}
		if killed < 5 {
			k.Errorf("only %d of 30 were killed", killed)
		}
	})
}
