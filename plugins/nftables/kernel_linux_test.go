// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/field"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A kernel gives access to the tables of the network namespace that the tests run in.
type kernel struct {
	*testing.T
	dir     string
	protect string
}

// onKernel runs f twice: with tables that other programs can change (protect "never") and with tables that only this
// process can change ("auto").
func onKernel(t *testing.T, f func(kernel)) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	for _, protect := range []string{"never", "auto"} {
		t.Run(protect, func(t *testing.T) {
			k := kernel{t, t.TempDir(), protect}
			k.flush()
			if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
				t.Fatal(err)
			}
			f(k)
		})
	}
}

// flush removes all tables, except those that a process owns.
func (k kernel) flush() {
	k.Helper()
	k.nft("flush", "ruleset")
}

// nft runs nft and returns its output.
func (k kernel) nft(args ...string) string {
	k.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		k.Fatalf("nft %v: %v: %s", args, err, out)
	}
	return string(out)
}

// checkListing checks that nft can list the rule set in each output format. If POINTSMAN_NFT has the path of another release
// of nft, it checks that one, too.
func (k kernel) checkListing() {
	k.Helper()
	for _, program := range []string{"nft", os.Getenv("POINTSMAN_NFT")} {
		for _, form := range []string{"-a", "-j", "-t"} {
			if program == "" {
				continue
			}
			if out, err := exec.Command(program, form, "list", "ruleset").CombinedOutput(); err != nil {
				k.Errorf("%s %s list ruleset: %v: %s", program, form, err, out[max(0, len(out)-500):])
			}
		}
	}
}

func (k kernel) options() []byte { return []byte(`{"protect":"` + k.protect + `"}`) }

// start configures a dataplane, as a new process does, and closes it at the end of the test.
func (k kernel) start() *plugin {
	k.Helper()
	p := New(k.dir).(*plugin)
	k.configure(p)
	k.Cleanup(p.die)
	return p
}

// configure begins a session.
func (k kernel) configure(p *plugin) {
	k.Helper()
	if _, err := p.Configure(k.Context(), sdk.Setup{Options: k.options()}); err != nil {
		k.Fatal(err)
	}
}

// die closes the dataplane without cleanup, as kill -9 does.
func (p *plugin) die() { _ = p.Close() }

func (k kernel) sync(p *plugin, u sdk.Update) {
	k.Helper()
	result, err := p.Sync(k.Context(), u)
	if err != nil || len(result.Failed) > 0 {
		k.Fatalf("sync: %v %+v", err, result)
	}
}

func (k kernel) role(p *plugin, r sdk.Role) {
	k.Helper()
	if err := p.SetRole(k.Context(), r); err != nil {
		k.Fatal(err)
	}
}

// TestKernelConforms runs the conformance suite with real packets: every scenario and every check of the contract.
func TestKernelConforms(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(k.dir) })
		s.Options = k.options()
		s.Testbed = g
		if k.protect == "never" {
			s.Disturb = func(context.Context) error {
				k.nft("delete", "table", "ip", table)
				return nil
			}
		}
		s.Foreign = func(context.Context) (string, error) { return k.foreign(), nil }
		k.nft("add table ip theirs; add chain ip theirs c { type nat hook prerouting priority -100; }; add rule ip theirs c ip daddr 203.0.113.99 drop; add table inet pointsman; add set inet pointsman s { type ipv4_addr; }")
		sdktest.Conform(k.T, s)
		k.checkListing()
	})
}

// foreign returns what nft lists of tables that are not ours.
func (k kernel) foreign() string {
	var all []string
	for _, line := range strings.Split(strings.TrimSpace(k.nft("list", "tables")), "\n") {
		if words := strings.Fields(line); len(words) == 3 && (words[2] != table || words[1] == "inet") && words[2] != "nat" {
			all = append(all, k.nft("list", "table", words[1], words[2]))
		}
	}
	return strings.Join(all, "\n")
}
