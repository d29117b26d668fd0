// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// step returns the update from one scenario to another.
func step(from, to sdktest.Scenario, revision uint64) sdk.Update {
	u := sdk.Update{From: revision, To: revision + 1, Node: &to.Node, Set: to.Services}
	for _, svc := range from.Services {
		if !slices.ContainsFunc(to.Services, func(s sdk.Service) bool { return s.Name == svc.Name }) {
			u.Delete = append(u.Delete, svc.Name)
		}
	}
	return u
}

// killedRestore is a script for replaceRestore that is killed at the point which the file FATE names: before it reads, after
// its first block, or at the end.
const killedRestore = `fate=$(cat FATE 2>/dev/null); rm -f FATE
case "$fate" in
before) kill -9 $$;;
half) awk '{print} /^COMMIT/ {exit}' | REAL "$@"; kill -9 $$;;
after) REAL "$@"; kill -9 $$;;
esac
exec REAL "$@"`

// After updates between random scenarios, with iptables-restore killed at random points and sometimes the process, too,
// the tables equal those of a fresh start.
func TestKernelUpdatesDespiteKills(t *testing.T) {
	onKernel(t, func(k kernel) {
		random := rand.New(rand.NewPCG(9, 10))
		scenarios := sdktest.Scenarios()
		fate := filepath.Join(k.TempDir(), "fate")
		defer k.replaceRestore(strings.ReplaceAll(killedRestore, "FATE", fate))()
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
				if random.IntN(2) == 0 { // restart the process, too
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
			k.Errorf("only %d of 30 updates were interrupted", killed)
		}
	})
}
