// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// likeKubeProxy returns inputs of iptables-restore with the nat rules of kube-proxy for n Services with some endpoints
// each. Each input has part Services.
func likeKubeProxy(n, endpoints, part int) []string {
	var pieces []string
	for from := 0; from < n; from += part {
		var chains, rules strings.Builder
		for i := from; i < min(n, from+part); i++ {
			name := sdk.Name{Namespace: "ns", Service: fmt.Sprint("s", i), Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4}
			comment := `-m comment --comment "` + iptables.Label(name)
			svc := clusterChain(name)
			fmt.Fprintf(&chains, ":%s - [0:0]\n", svc)
			fmt.Fprintf(&rules, "-A KUBE-SERVICES -d %s/32 -p tcp %s cluster IP\" -m tcp --dport 80 -j %s\n", v4(base+uint32(i)), comment, svc)
			for e := range endpoints {
				ep := fmt.Sprintf("%s:8080", v4(10<<24|128<<16+uint32(i*endpoints+e)))
				sep := "KUBE-SEP-" + iptables.Hash(iptables.Label(name)+"tcp"+ep)
				fmt.Fprintf(&chains, ":%s - [0:0]\n", sep)
				fmt.Fprintf(&rules, "-A %s %s -> %s\" -m statistic --mode random --probability 0.1 -j %s\n", svc, comment, ep, sep)
				fmt.Fprintf(&rules, "-A %s -p tcp %s\" -m tcp -j DNAT --to-destination %s\n", sep, comment, ep)
			}
		}
		pieces = append(pieces, "*nat\n"+chains.String()+rules.String()+"COMMIT\n")
	}
	return pieces
}

// The rules of a kube-proxy in a large cluster are left on the node. Configure reads them only from the legacy backend,
// to count them. The first update reads and replaces all of them, and reports progress meanwhile.
func TestKernelBesideALargeKubeProxy(t *testing.T) {
	onKernel(t, func(k kernel) {
		n := k.largeKubeProxy()
		started := k.spyOnPrograms()

		p := New(k.dir).(*plugin)
		k.Cleanup(p.die) // otherwise it would continue to run during the test of the next backend, which records its programs
		began := time.Now()
		if _, err := p.Configure(k.Context(), sdk.Setup{}); err != nil {
			k.Fatal(err)
		}
		took := time.Since(began)
		if got := p.tools()[0].Backend; got != k.backend {
			k.Errorf("the rules are in %s, and Configure chose %s", k.backend, got)
		}
		for _, line := range started() {
			if !strings.HasSuffix(line, "--version") && !strings.Contains(line, "-legacy-save ") {
				k.Errorf("Configure ran %s", line)
			}
		}

		before, began := p.Report().Progress, time.Now()
		s := scenario(k.T, "node-port")
		k.role(p, sdk.Active)
		if after := p.Report().Progress; after < before+7 {
			k.Errorf("while it read, it reported progress %d times", after-before)
		}
		reading := time.Since(began)
		k.sync(p, s.Update(1))
		k.want(s, sdk.Active)
		k.Logf("%d Services: to begin took %v, to read %v, to replace %v", n, took, reading, time.Since(began)-reading)
	})
}

// largeKubeProxy writes the rules of a kube-proxy for many Services, and returns the number of Services.
func (k kernel) largeKubeProxy() int {
	k.Helper()
	const n, endpoints = 300, 3
	k.restore("*nat\n:KUBE-SERVICES - [0:0]\n-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES\nCOMMIT\n")
	for _, part := range likeKubeProxy(n, endpoints, 500) {
		k.restore(part)
	}
	return n
}

// Cleanup also reads large tables only by programs that report progress and end with the call.
func TestKernelCleansUpAfterALargeKubeProxy(t *testing.T) {
	onKernel(t, func(k kernel) {
		n := k.largeKubeProxy()
		started := k.spyOnPrograms()
		p := New(k.dir).(*plugin)
		k.Cleanup(p.die)

		for _, dryRun := range []bool{true, false} {
			before, began := p.Report().Progress, time.Now()
			named, err := p.Cleanup(k.Context(), sdk.Leftovers{KubeProxy: true, DryRun: dryRun})
			if err != nil || len(named) <= n {
				k.Fatalf("dry run: %t: %d steps, %v", dryRun, len(named), err)
			}
			if after := p.Report().Progress; after < before+7 {
				k.Errorf("Cleanup reported progress %d times", after-before)
			}
			k.Logf("%d Services: dry run %t took %v", n, dryRun, time.Since(began))
		}
		for _, line := range started() {
			program, _, _ := strings.Cut(line, " ")
			if !strings.HasSuffix(line, "--version") && !strings.HasSuffix(program, "-save") && !strings.HasSuffix(program, "-restore") {
				k.Errorf("Cleanup ran %s", line)
			}
		}
		if chains := k.tables(sdk.IPv4); slices.ContainsFunc(slices.Collect(maps.Keys(chains)), func(id iptables.ID) bool { return isOurs(id) }) {
			k.Errorf("Cleanup left\n%v", chains)
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
	dir := k.TempDir()
	log := filepath.Join(dir, "started")
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, rest := range []string{"-nft", "-nft-save", "-nft-restore", "-legacy", "-legacy-save", "-legacy-restore"} {
			real, err := exec.LookPath(family + rest)
			if err != nil {
				continue
			}
			script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >>%s\nexec %s \"$@\"\n", family+rest, log, real)
			if err := os.WriteFile(filepath.Join(dir, family+rest), []byte(script), 0o755); err != nil {
				k.Fatal(err)
			}
		}
	}
	k.Setenv("PATH", dir+":"+os.Getenv("PATH"))
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
			svc := service(1, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+1), 80)})
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
