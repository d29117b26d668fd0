// SPDX-License-Identifier: Apache-2.0

package swap

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

	"golang.org/x/sys/unix"
)

// TestKernelConfigMap keeps the config file in a folder as the kubelet makes it of a ConfigMap: the file is a link into
// a folder that is a link, and the kubelet changes the latter. The mode changes, and changes again during the swap: the
// last one serves in the end.
func TestKernelConfigMap(t *testing.T) {
	n := newNode(t, "iptables")
	publish := func(version, mode string) {
		n.write(version+"/host.yaml", n.settings(mode))
		if err := errors.Join(os.Symlink(version, n.path("..next")), os.Rename(n.path("..next"), n.path("..data"))); err != nil {
			t.Fatal(err)
		}
	}
	publish("..1", "iptables")
	if err := errors.Join(os.Remove(n.path("host.yaml")), os.Symlink("..data/host.yaml", n.path("host.yaml"))); err != nil {
		t.Fatal(err)
	}
	n.startAt("staging/fill")
	l := n.newLoad()
	publish("..2", "userspace")
	n.waitAtFailpoint("staging/fill")
	publish("..3", "iptables")
	n.until("the host has read that", func() error {
		m, err := n.Mode(t.Context())
		if err == nil && m.File != "iptables" {
			err = fmt.Errorf("the mode of the file is %s", m.File)
		}
		return err
	})
	n.resume()
	n.waitForMode("iptables")
	publish("..4", "userspace")
	n.until("userspace serves", n.serves("userspace"))
	l.done("a ConfigMap that changes")
}

// expectRefused asks for a swap that must be refused for that reason and leave no trace.
func (n *node) expectRefused(mode, why string, words ...string) {
	n.Helper()
	out, err := n.verb(append([]string{"mode", "swap", mode, "--wait"}, words...)...)
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(out, why) {
		n.Errorf("swap to %s: %v; want %q in the output: %s", mode, err, why, out)
	}
	n.waitForRest()
	n.expectNothingLeft(mode)
}

// TestKernelFullDisk has a full state folder: a swap that the next host could not finish is refused, and succeeds when
// there is room.
func TestKernelFullDisk(t *testing.T) {
	n := newNode(t, "iptables")
	n.needsLaunchedPlugins()
	if err := errors.Join(os.MkdirAll(n.path("state"), 0o700), unix.Mount("none", n.path("state"), "tmpfs", 0, "size=64k,mode=700")); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(n.path("state"), unix.MNT_DETACH) })
	n.start()
	l := n.newLoad()
	if err := os.WriteFile(n.path("state/ballast"), make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	n.expectRefused("userspace", "no space left on device")
	if err := os.Remove(n.path("state/ballast")); err != nil {
		t.Fatal(err)
	}
	n.swapTo("userspace")
	l.done("a disk that is full for a while")
}

// TestKernelAskedTwice asks for the former mode and for the next mode again during a swap, and then resets the wanted
// mode: the last request wins, and a verb that waits for an earlier request exits with 3.
func TestKernelAskedTwice(t *testing.T) {
	n := newApart(t, "iptables")
	n.startAt("staging/fill")
	n.ask("userspace")
	n.waitAtFailpoint("staging/fill")
	waited := make(chan error, 1)
	go func() {
		_, err := n.verb("mode", "swap", "userspace", "--wait")
		waited <- err
	}()
	n.until("userspace is the wanted mode", func() error {
		if m, err := n.Mode(t.Context()); err != nil || m.Wanted != "userspace" {
			return fmt.Errorf("%+v, %w", m, err)
		}
		return nil
	})
	if out, err := n.verb("mode", "swap", "iptables"); err != nil || !strings.Contains(out, "is the wanted mode again") {
		t.Errorf("swap to iptables: %v: %s", err, out)
	}
	var exit *exec.ExitError
	if err := <-waited; !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the verb that waited for userspace: %v; want exit code 3", err)
	}
	if out, err := n.verb("mode", "swap", "userspace"); err != nil {
		t.Errorf("swap to userspace again: %v: %s", err, out)
	}
	if out, err := n.verb("mode", "reset"); err != nil || !strings.Contains(out, "is undone") {
		t.Errorf("reset: %v: %s", err, out)
	}
	n.resume()
	n.waitForMode("iptables")
	n.expectNothingLeft("userspace")
	if out, err := n.verb("mode", "show"); err != nil || !strings.Contains(out, "undone: ") {
		t.Errorf("show: %v: %s", err, out)
	}
	if m, err := n.Mode(t.Context()); err != nil || m.Asked != "" {
		t.Errorf("the next host wants mode %q, %v", m.Asked, err)
	}
	if out, err := n.verb("status", "--until-well", "1m"); err != nil {
		t.Errorf("after a swap that was undone by request, the status is: %v: %s", err, out)
	}
}

// TestKernelFlips asks for two modes in turn without waiting: the last one serves in the end, and no call fails.
func TestKernelFlips(t *testing.T) {
	n := newNode(t, "iptables")
	n.start()
	l := n.newLoad()
	last := ""
	for i := range 30 {
		last = []string{"nftables", "iptables", "userspace"}[i%3]
		n.ask(last)
		n.until("the host wants "+last, func() error {
			m, err := n.Mode(t.Context())
			if err == nil && m.Wanted != last && m.Mode != last {
				err = fmt.Errorf("%+v", m)
			}
			return err
		})
	}
	n.waitForMode(last)
	l.done("modes asked for by turns")
	for _, mode := range []string{"nftables", "iptables"} {
		n.expectNothingLeft(mode)
	}
}

// TestKernelIdle has idle connections while the mode changes and the old one is removed, in a namespace where no other
// program has rules: the kernel's connection tracking must not end with the rules that started it.
func TestKernelIdle(t *testing.T) {
	n := newNode(t, "iptables")
	n.drain = 5 * time.Second
	n.writeMode("iptables")
	n.start()
	n.waitForAnswers()
	for _, mode := range []string{"userspace", "iptables", "nftables", "iptables", "nftables", "userspace"} {
		var idle []*kept
		for _, c := range n.callers() {
			idle = append(idle, n.keep(c))
		}
		relayed := n.serves("userspace")() == nil
		n.swapTo(mode)
		if !relayed {
			n.waitForMode(mode) // the kernel keeps translated connections; those through a relay end with it
		}
		for _, k := range idle {
			if err := k.say(); err != nil {
				t.Errorf("idle while the mode went to %s: %s: %v", mode, k.name, err)
			}
			_ = k.Close()
		}
		n.waitForMode(mode)
	}
}

// TestKernelLeavesAll compares a node with what it was before, after everything was removed: kernel parameters, all
// other programs' rules byte by byte, and the ledger.
func TestKernelLeavesAll(t *testing.T) {
	n := newNode(t, "iptables")
	n.addForeignRules()
	rules, foreign, sysctls := savedRules(t), n.foreignRules(), parameters()
	n.start()
	for _, mode := range []string{"userspace", "nftables", "iptables", "nftables", "userspace", "iptables"} {
		n.swapTo(mode)
		n.waitForMode(mode)
		n.waitForAnswers()
		for _, other := range modes {
			if other != mode {
				n.expectNothingLeft(other)
			}
		}
	}
	n.end(syscall.SIGINT)
	if out, err := n.verb("cleanup"); err != nil {
		t.Fatalf("cleanup: %v: %s", err, out)
	}
	if now := savedRules(t); now != rules {
		t.Errorf("the rules were\n%s\nand are\n%s", rules, now)
	}
	if now := n.foreignRules(); now != foreign {
		t.Errorf("foreign rules were\n%s\nand are\n%s", foreign, now)
	}
	for path, was := range sysctls {
		if now, err := os.ReadFile(path); err == nil && string(now) != was {
			t.Errorf("%s was %q and is %q", path, was, now)
		}
	}
	for _, mode := range modes {
		n.expectNothingLeft(mode)
	}
}

// savedRules returns all rules, without times and counters.
func savedRules(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("iptables-save").Output()
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(out)) {
		if line, _, _ = strings.Cut(line, "["); !strings.HasPrefix(line, "#") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// parameters returns the kernel parameters that dataplanes change.
func parameters() map[string]string {
	all := make(map[string]string)
	for _, pattern := range []string{"/proc/sys/net/ipv4/conf/*/*", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/netfilter/nf_conntrack_*", "/proc/sys/net/ipv4/vs/*"} {
		paths, _ := filepath.Glob(pattern)
		for _, path := range paths {
			if value, err := os.ReadFile(path); err == nil && !strings.HasSuffix(path, "_count") {
				all[path] = string(value)
			}
		}
	}
	return all
}

// ipv6Service is a Service in IPv6.
const ipv6Service = `
apiVersion: v1
kind: Service
metadata: {name: six, namespace: shop}
spec: {clusterIP: "fd00:30::a", ipFamilies: [IPv6], ports: [{port: 8081}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: six-1, namespace: shop, labels: {kubernetes.io/service-name: six}}
addressType: IPv6
ports: [{port: 8081}]
endpoints: [{addresses: ["fd00:180::1"]}]
`

// TestKernelIPv6 swaps there and back while a client calls by IPv6.
func TestKernelIPv6(t *testing.T) {
	n := newNode(t, "iptables")
	from, to := netip.MustParseAddr("fd00:198::7"), netip.MustParseAddrPort("[fd00:30::a]:8081")
	for _, addr := range []string{"fd00:192::10", "fd00:30::a"} {
		if err := n.testbed.Own(netip.MustParseAddr(addr)); err != nil {
			t.Skipf("no IPv6 here: %v", err)
		}
	}
	n.echo(netip.MustParseAddrPort("[fd00:180::1]:8081"))
	n.write("services/six.yaml", ipv6Service)
	n.start()
	c := n.caller("client", from, to)
	n.until("IPv6 is served", func() error { return c.Try(t.Context()) })
	for _, modes := range [][]string{{"userspace", "iptables"}, {"nftables", "iptables", "nftables"}, {"userspace", "nftables"}} {
		l := n.loadOf(c)
		for _, mode := range modes {
			n.swapTo(mode)
		}
		l.done("swaps in IPv6")
		if l.End().New == 0 {
			t.Error("nothing asked")
		}
		n.waitForRest()
	}
}
