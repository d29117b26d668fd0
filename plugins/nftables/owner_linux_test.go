// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

// If another running process owns the table, the error names that process and the command that ends it. Cleanup returns
// the same error until the owner has ended.
func TestKernelNamesTheOwner(t *testing.T) {
	onKernel(t, func(k kernel) {
		if k.protect == "never" {
			return
		}
		owner := exec.Command("nft", "-i")
		stdin, err := owner.StdinPipe()
		if err != nil {
			k.Fatal(err)
		}
		if err := owner.Start(); err != nil {
			k.Fatal(err)
		}
		defer func() {
			_ = stdin.Close()
			_ = owner.Wait()
		}()
		if _, err := io.WriteString(stdin, "add table ip pointsman { flags owner; }\n"); err != nil {
			k.Fatal(err)
		}
		eventually.True(k, "nft owns the table", func() bool { return strings.Contains(k.nft("list", "tables"), "ip pointsman") })
		p := k.start()
		_, err = p.Sync(k.Context(), sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
		if expected := fmt.Sprintf("table ip pointsman is owned by process %d (nft)", owner.Process.Pid); err == nil || !strings.Contains(err.Error(), expected) {
			k.Errorf("%v; expected %q", err, expected)
		}
		p.die()
		_, err = New(k.dir).Cleanup(k.Context(), sdk.Leftovers{})
		expected := fmt.Sprintf("remove table ip pointsman: owned by process %d (nft): nftables: operation 0: operation not permitted; try: kill -9 %[1]d", owner.Process.Pid)
		if err == nil || !strings.Contains(err.Error(), expected) {
			k.Errorf("cleanup: %v; expected %q", err, expected)
		}
		if err := owner.Process.Kill(); err != nil {
			k.Fatal(err)
		}
		_ = owner.Wait()
		if _, err := New(k.dir).Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
			k.Errorf("cleanup after the owner has ended: %v", err)
		}
	})
}

// While a process runs, the owner of its table does not change between sessions, so the table is never without an
// owner.
func TestKernelOwnsBetweenSessions(t *testing.T) {
	onKernel(t, func(k kernel) {
		if k.protect == "never" {
			return
		}
		reader, err := nftnl.Dial() // uses the process ID as its port ID, so that no other socket gets the same port ID again
		if err != nil {
			k.Fatal(err)
		}
		defer reader.Close()
		owners := func() (all []uint32) {
			for _, of := range families {
				t, err := reader.List(ipOf(of).NFT(), table).Table(k.Context())
				if err != nil || t == nil || t.Owner == 0 {
					k.Fatalf("%s: table %+v, %v; expected one with an owner", of, t, err)
				}
				all = append(all, t.Owner)
			}
			return all
		}
		p := k.start()
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
		first := owners()
		for range 3 {
			k.configure(p)
			if now := owners(); !slices.Equal(now, first) {
				k.Errorf("the owners were %v, and are %v in the next session", first, now)
			}
			k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
		}
		p.die()
		p = k.start()
		k.sync(p, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
		if now := owners(); slices.Equal(now, first) {
			k.Errorf("the owners are still %v, the sockets of a process that has ended", now)
		}
	})
}
