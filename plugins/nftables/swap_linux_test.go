// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// From the iptables dataplane, in either of its backends, to this one and back, as a host does
// it: no connection fails, also where FORWARD drops what neither accepts.
func TestKernelSwapsWithIptables(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		for _, backend := range []string{"nft", "legacy"} {
			k.Run(backend, func(t *testing.T) {
				k := kernel{t, k.dir, k.protect}
				s := k.parsed(g, sticking)
				s.Services[0].Affinity = 0
				s.Node.MasqueradeAll = true // or iptables mode does not accept what pods begin
				if out, err := exec.Command("iptables-"+backend, "-P", "FORWARD", "DROP").CombinedOutput(); err != nil {
					t.Skipf("needs the backend: %v: %s", err, out)
				}
				defer exec.Command("iptables-"+backend, "-P", "FORWARD", "ACCEPT").Run()
				other := func() sdk.Dataplane {
					p := iptables.New(k.dir)
					if _, err := p.Configure(k.Context(), sdk.Setup{Options: []byte(`{"backend":"` + backend + `"}`)}); err != nil {
						t.Skip("needs the backend: ", err)
					}
					return p
				}
				ours := func() sdk.Dataplane { return k.start() }
				from := other()
				do := func(what string, err error) {
					t.Helper()
					if err != nil {
						t.Fatal(what, err)
					}
				}
				_, err := from.Sync(k.Context(), s.Update(1))
				do("the first", err)
				do("the first", from.SetRole(k.Context(), sdk.Active))
				stage, err := g.Open(k.Context(), from, s)
				do("endpoints", err)
				defer stage.Close()
				calls, end := k.load(stage, s.Packets[0])
				flow, err := stage.Dial(k.Context(), s.Packets[0])
				do("a connection", err)
				defer flow.Close()
				n := 0
				for began := time.Now(); time.Since(began) < 8*time.Second && calls.Load() < 6000; n++ {
					next := []func() sdk.Dataplane{ours, other}[n%2]()
					_, err := next.Sync(k.Context(), s.Update(1))
					do("stage", err)
					do("cut", next.SetRole(k.Context(), sdk.Active))
					do("drain", from.SetRole(k.Context(), sdk.Draining))
					_, err = from.Cleanup(k.Context(), sdk.Leftovers{})
					do("clear", err)
					do("end", from.(interface{ Close() error }).Close())
					from = next
					if _, err := flow.Ask(k.Context()); err != nil {
						t.Errorf("after %d swaps an established connection: %v", n+1, err)
						break
					}
				}
				end(fmt.Sprintf("%d swaps", n))
				_, err = from.Cleanup(k.Context(), sdk.Leftovers{})
				do("clear", err)
				do("end", from.(interface{ Close() error }).Close())
			})
		}
	})
}
