// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

// netfilter is the folder with conntrack's parameters.
const netfilter = sysctl.Folder + "net/netfilter/"

func TestMain(m *testing.M) { netns.Main(m) }

// A kernel gives access to the tables of the network namespace that the tests run in, by one backend.
type kernel struct {
	*testing.T
	backend iptables.Backend
	dir     string
}

// onKernel runs f for each backend that this machine has, with empty tables.
func onKernel(t *testing.T, f func(kernel)) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			if _, err := iptables.Open(t.Context(), sdk.IPv4, backend); err != nil {
				t.Skip("needs the backend: ", err)
			}
			k := kernel{t, backend, t.TempDir()}
			k.flush()
			// Delete flows of the previous test: a new connection with the same ports would follow them.
			if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(sysctl.RouteLocalnet, []byte("0"), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.flush)
			f(k)
		})
	}
}

// flush empties each table in one step, so that no repair happens in between.
func (k kernel) flush() {
	k.Helper()
	for _, program := range []string{"iptables", "ip6tables"} {
		k.run("sh", "-c", `printf '*nat\nCOMMIT\n*filter\nCOMMIT\n*mangle\nCOMMIT\n' | `+program+"-"+string(k.backend)+"-restore -w")
	}
}

// run runs a program and returns its output. The programs of iptables wait for the lock.
func (k kernel) run(name string, args ...string) string {
	k.Helper()
	if name == "iptables-"+string(k.backend) || name == "ip6tables-"+string(k.backend) {
		args = append([]string{"-w"}, args...)
	}
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		k.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

// options returns plugin options that select the backend.
func (k kernel) options() []byte { return []byte(`{"backend":"` + string(k.backend) + `"}`) }

// start configures a dataplane, as a new process does, and closes it at the end of the test.
func (k kernel) start() *plugin {
	k.Helper()
	p := New(k.dir).(*plugin)
	if _, err := p.Configure(k.Context(), sdk.Setup{Options: k.options()}); err != nil {
		k.Fatal(err)
	}
	k.Cleanup(p.die)
	return p
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

// want checks that the kernel has the rules for s in a role.
func (k kernel) want(s sdktest.Scenario, role sdk.Role) {
	k.Helper()
	for _, wrong := range k.differences(s, role) {
		k.Error(wrong)
	}
}

// differences returns how the kernel's tables differ from the expected ones: our chains must be equal, and our jumps
// must be in the built-in chains.
func (k kernel) differences(s sdktest.Scenario, role sdk.Role) []string {
	k.Helper()
	var wrong []string
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		got, b := k.tables(family), tablesOf(k, family, s.Node, s.Services)
		if lacks := rulestest.LacksShared(got, s.Node.MasqueradeBit); len(lacks) > 0 {
			wrong = append(wrong, fmt.Sprintf("%s: what all dataplanes share lacks %q", family, lacks))
		}
		b.node.canCount = counting()
		uplinks, err := flows.Uplinks(family)
		if err != nil {
			k.Fatal(err)
		}
		b.node.uplinks = uplinks
		b.setNode(b.node)
		b.write(k, nil)
		should := b.ours()
		for id := range got {
			if _, ok := should[id]; !ok && isOurs(id) {
				wrong = append(wrong, fmt.Sprintf("%s: chain %s should not be there", family, id))
			}
		}
		for _, id := range slices.SortedFunc(maps.Keys(should), iptables.ID.Compare) {
			if have, want := iptables.Join(got[id]), iptables.Join(should[id]); have != want {
				wrong = append(wrong, fmt.Sprintf("%s: chain %s is\n%s, and should be\n%s", family, id, have, want))
			}
		}
		for _, j := range b.node.jumps(sdk.Active) {
			if should := slices.Contains(b.node.jumps(role), j); got.Has(j.At, j.Rule) != should {
				wrong = append(wrong, fmt.Sprintf("%s: jump in %s %q: should be there: %v, has %q", family, j.At, j.Rule, should, got[j.At]))
			}
		}
	}
	return wrong
}

// counting reports whether rules can count packets on this machine. It is valid after a writer has probed this.
func counting() bool { return len(accountSamples()) > 0 }

// tables returns the kernel's tables of a family.
func (k kernel) tables(family sdk.Family) iptables.Tables {
	k.Helper()
	tool, err := iptables.Open(k.Context(), family, k.backend)
	if err != nil {
		k.Fatal(err)
	}
	got, err := tool.Save(k.Context(), "nat", "filter")
	if err != nil {
		k.Fatal(err)
	}
	return got
}

// eventually waits until ok returns true, much longer than it should take.
func (k kernel) eventually(what string, ok func() bool) {
	k.Helper()
	eventually.True(k, what, ok)
}

// The kernel accepts the rules of every scenario and returns them unchanged. So a new process takes over the rules of
// an old one without writing.
func TestKernelAcceptsEveryScenario(t *testing.T) {
	onKernel(t, func(k kernel) {
		for _, s := range sdktest.Scenarios() {
			k.Run(s.Name, func(t *testing.T) {
				k := kernel{t, k.backend, k.dir}
				p := k.start()
				k.sync(p, s.Update(1))
				k.role(p, sdk.Active)
				k.want(s, sdk.Active)
				p.die()

				next := k.start()
				k.sync(next, s.Update(1))
				k.want(s, sdk.Active) // in the role that the rules show
				for _, f := range next.families {
					if written := f.rules.Stats.Last; written["nat"]+written["filter"] > 0 {
						t.Errorf("a new process wrote, in %s: %v", f.rules.Family(), written)
					}
				}
			})
		}
	})
}
