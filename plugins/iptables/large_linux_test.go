// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// largeKubeProxy writes the nat rules of a kube-proxy for many Services, and returns the number of Services.
func (k kernel) largeKubeProxy() int {
	k.Helper()
	const n, endpoints = 300, 3
	var chains, rules strings.Builder
	for i := range n {
		svc := service(i, sdk.Frontend{Addr: netip.AddrPortFrom(v4(base+uint32(i)), 80)})
		comment, chain := `-m comment --comment "`+iptables.Label(svc.Name), clusterChain(svc.Name)
		fmt.Fprintf(&chains, ":%s - [0:0]\n", chain)
		fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %s/32 -p tcp %s cluster IP\" -m tcp --dport 80 -j %s\n", svc.Frontends[0].Addr.Addr(), comment, chain)
		for e := range endpoints {
			ep := netip.AddrPortFrom(v4(10<<24|128<<16+uint32(i*endpoints+e)), 8080)
			sep := endpointChain(svc.Name, ep)
			fmt.Fprintf(&chains, ":%s - [0:0]\n", sep)
			fmt.Fprintf(&rules, "-A %s %s -> %s\" -m statistic --mode random --probability 0.1 -j %s\n", chain, comment, ep, sep)
			fmt.Fprintf(&rules, "-A %s -p tcp %s\" -m tcp -j DNAT --to-destination %s\n", sep, comment, ep)
		}
	}
	const jump = "-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\n"
	k.restore("*nat\n:KUBE-SERVICES - [0:0]\n" + chains.String() + jump + rules.String() + "COMMIT\n")
	return n
}

// The rules of a kube-proxy in a large cluster are left on the node. Configure reads them only from the legacy backend,
// to count them. The first update reads and replaces all of them. Like Cleanup, it runs only programs that report
// progress and end with the call.
func TestKernelBesideALargeKubeProxy(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.largeKubeProxy()
		started := k.spyOnPrograms()
		p := New(k.dir).(*plugin)
		k.Cleanup(p.die) // otherwise it would continue to run during the test of the next backend, which records its programs
		if _, err := p.Configure(k.Context(), sdk.Setup{}); err != nil {
			k.Fatal(err)
		}
		if got := p.tools()[0].Backend; got != k.backend {
			k.Errorf("the rules are in %s, and Configure chose %s", k.backend, got)
		}
		for _, line := range started() {
			if !strings.HasSuffix(line, "--version") && !strings.Contains(line, "-legacy-save ") {
				k.Errorf("Configure ran %s", line)
			}
		}
		progresses := func(what string, f func()) {
			before := p.Report().Progress
			if f(); p.Report().Progress < before+7 {
				k.Errorf("%s reported progress %d times", what, p.Report().Progress-before)
			}
		}
		s := scenario(k.T, "node-port")
		progresses("SetRole", func() { k.role(p, sdk.Active) })
		k.sync(p, s.Update(1))
		k.want(s, sdk.Active)

		k.flush()
		n := k.largeKubeProxy()
		for _, dryRun := range []bool{true, false} {
			progresses("Cleanup", func() {
				if named, err := p.Cleanup(k.Context(), sdk.Leftovers{KubeProxy: true, DryRun: dryRun}); err != nil || len(named) <= n {
					k.Fatalf("dry run: %t: %d steps, %v", dryRun, len(named), err)
				}
			})
		}
		for _, line := range started() {
			program, _, _ := strings.Cut(line, " ")
			if !strings.HasSuffix(line, "--version") && !strings.HasSuffix(program, "-save") && !strings.HasSuffix(program, "-restore") && !strings.Contains(line, " -S ") {
				k.Errorf("the plugin ran %s", line)
			}
		}
		for id := range k.tables(sdk.IPv4) {
			if isOurs(id) {
				k.Errorf("Cleanup left %s", id)
			}
		}
	})
}

// restore passes text to the backend's iptables-restore.
func (k kernel) restore(text string) {
	k.Helper()
	cmd := exec.Command("iptables-"+string(k.backend)+"-restore", "-w", "--noflush")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		k.Fatalf("restore: %v: %s", err, out)
	}
}

// spyOnPrograms records, from now on, which iptables programs are started and with which arguments.
func (k kernel) spyOnPrograms() (started func() []string) {
	k.Helper()
	log := filepath.Join(k.TempDir(), "started")
	var programs []string
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, rest := range []string{"-nft", "-nft-save", "-nft-restore", "-legacy", "-legacy-save", "-legacy-restore"} {
			programs = append(programs, family+rest)
		}
	}
	k.replace(`echo NAME "$@" >>`+log+`; exec REAL "$@"`, programs...)
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			k.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// BenchmarkManyEndpoints measures the CPU time that a Service with the maximum number of endpoints costs: for the first
// write and for a change of one endpoint.
func BenchmarkManyEndpoints(b *testing.B) {
	if os.Getuid() != 0 {
		b.Skip("needs root: it writes rules in a network namespace")
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		b.Run(string(backend), func(b *testing.B) {
			p := New(b.TempDir()).(*plugin)
			defer p.Close()
			_, err := p.Configure(b.Context(), sdk.Setup{Options: []byte(`{"backend":"` + string(backend) + `"}`)})
			if err := errors.Join(err, p.SetRole(b.Context(), sdk.Active)); err != nil {
				b.Fatal(err)
			}
			svc := large(0)
			seconds := func(u sdk.Update, n int) float64 {
				svc.Cluster = endpoints(n)
				u.Set = []sdk.Service{svc}
				before := cpuTime()
				if result, err := p.Sync(b.Context(), u); err != nil || len(result.Failed) > 0 {
					b.Fatal(err, result)
				}
				return (cpuTime() - before).Seconds()
			}
			for b.Loop() {
				b.ReportMetric(seconds(sdk.Update{Full: true, To: 1, Node: &sdk.Node{MasqueradeBit: 14}}, Ceiling), "s/write")
				b.ReportMetric(seconds(sdk.Update{From: 1, To: 2}, Ceiling-1), "s/change")
				if _, err := p.Cleanup(b.Context(), sdk.Leftovers{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// cpuTime returns the CPU time of this process and its children.
func cpuTime() (sum time.Duration) {
	for _, of := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		_ = syscall.Getrusage(of, &u) // it cannot fail with these arguments
		sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return sum
}
