// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/relaytest"
)

func TestMain(m *testing.M) { relaytest.Main(m) }

// A kernel gives access to the tables of the test's namespace by one backend.
type kernel struct {
	*testing.T
	backend iptables.Backend
	dir     string
}

// onKernel runs f with each backend that this machine has, and with empty tables.
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
			t.Cleanup(k.flush)
			f(k)
		})
	}
}

// flush empties each table by one commit, so that no repair comes in between.
func (k kernel) flush() {
	k.Helper()
	for _, program := range []string{"iptables", "ip6tables"} {
		k.run("sh", "-c", `printf '*nat\nCOMMIT\n*filter\nCOMMIT\n' | `+program+"-"+string(k.backend)+"-restore -w")
	}
}

// run runs a program and returns its output. iptables waits for its lock.
func (k kernel) run(name string, args ...string) string {
	k.Helper()
	if name == "iptables-"+string(k.backend) || name == "ip6tables-"+string(k.backend) {
		args = append([]string{"-w"}, args...)
	}
	cmd := exec.Command(name, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr // iptables-nft warns there about tables of iptables-legacy
	out, err := cmd.Output()
	if err != nil {
		k.Fatalf("%s %v: %v: %s", name, args, err, stderr.String())
	}
	return string(out)
}

// options returns options for rules in the backend. Flows last long, because a busy machine is slow.
func (k kernel) options() []byte {
	return fmt.Appendf(nil, `{"redirect": "always", "udpIdleTimeout": "1m", "backend": %q}`, k.backend)
}

// world returns a testbed with the node of the test and hosts around it.
func world(t *testing.T) *netns.Testbed {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces")
	}
	g, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// disturb removes rules and a jump.
func (k kernel) disturb(context.Context) error {
	program := "iptables-" + string(k.backend)
	k.run(program, "-t", "nat", "-F", portals.Chain)
	k.run(program, "-t", "nat", "-D", "PREROUTING", "-j", container.Chain)
	k.run(program, "-t", "filter", "-F", deny.Chain)
	return nil
}

// foreign returns all rules. At the first call it adds rules of another program.
func (k kernel) foreign(context.Context) (string, error) {
	program := "iptables-" + string(k.backend)
	if _, err := exec.Command(program, "-t", "nat", "-N", "FOREIGN").CombinedOutput(); err == nil {
		k.run(program, "-t", "nat", "-A", "FOREIGN", "-d", "203.0.113.1", "-j", "RETURN")
		k.run(program, "-t", "nat", "-I", "PREROUTING", "-j", "FOREIGN")
		k.run(program, "-t", "filter", "-A", "FORWARD", "-s", "203.0.113.1", "-j", "DROP")
	}
	return k.saved(), nil
}

// saved returns all rules.
func (k kernel) saved() string {
	k.Helper()
	var all string
	for _, program := range []string{"iptables-", "ip6tables-"} {
		for _, table := range []string{"nat", "filter"} {
			for line := range strings.Lines(k.run(program+string(k.backend)+"-save", "-t", table)) {
				if line[0] == '-' {
					all += line
				}
			}
		}
	}
	return all
}

// TestKernelConforms runs the conformance suite with real packets.
func TestKernelConforms(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(k.dir) })
		s.Options = k.options()
		s.Testbed = g
		s.Disturb = k.disturb
		s.Foreign = k.foreign
		sdktest.Conform(k.T, s)
	})
}

// refuse changes each line with a text that iptables-restore reads, so that the kernel refuses it in any table but filter, until
// undo is called.
func (k kernel) refuse(text string) (undo func()) {
	k.Helper()
	dir, before := k.TempDir(), os.Getenv("PATH")
	for _, program := range []string{"iptables-", "ip6tables-"} {
		name := program + string(k.backend) + "-restore"
		path, err := exec.LookPath(name)
		if err != nil {
			k.Fatal(err)
		}
		script := "#!/bin/sh\nsed -e '/^-A.*" + text + "/s/ -j .*/ -j REJECT/' | " + path + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			k.Fatal(err)
		}
	}
	k.Setenv("PATH", dir+":"+before)
	return func() { k.Setenv("PATH", before) }
}
