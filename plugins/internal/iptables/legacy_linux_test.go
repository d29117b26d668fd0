// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// Tool.count counts rules, and separately KUBE- chains with the rules in them; Counted returns the packets that
// reached the rules of chains.
func TestKernelCounts(t *testing.T) {
	needsRoot(t)
	runs(t, "ip", "link", "set", "lo", "up")
	for _, backend := range []Backend{NFT, Legacy} {
		tool, err := Open(t.Context(), sdk.IPv4, backend)
		if err != nil {
			t.Skip("needs the backend: ", err)
		}
		run := func(line string) { runs(t, tool.Prefix, strings.Fields(line)...) }
		t.Cleanup(func() {
			run("-F")
			run("-X")
		})
		for _, line := range []string{
			"-N KUBE-A", "-N THEIRS", "-A KUBE-A -p udp -j ACCEPT", "-A KUBE-A -p tcp -j ACCEPT",
			"-A OUTPUT -d 127.0.0.9 -p udp -j KUBE-A", "-A THEIRS -j RETURN",
		} {
			run(line)
		}
		want := [2]int{4, 3}
		if backend == NFT { // the use count of KUBE-A includes the jump to it
			want = [2]int{5, 4}
		}
		rules, kube, err := tool.count(t.Context())
		if got := [2]int{rules, kube}; err != nil || got != want {
			t.Errorf("%s: counted %v, %v; want %v", backend, got, err, want)
		}
		if backend == NFT {
			continue // compatibility matches have a counter that test/field checks
		}
		conn, err := net.Dial("udp4", "127.0.0.9:9")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("one")); err != nil {
			t.Fatal(err)
		}
		counted, err := tool.Counted(t.Context(), map[string]string{"KUBE-A": "reason", "NONE": "other"})
		if want := map[string]uint64{"reason": 1}; err != nil || !maps.Equal(counted, want) {
			t.Errorf("%s: counted packets %v, %v; want %v", backend, counted, err, want)
		}
	}
}

// Restore returns the line and the chain that the program or the kernel refuses. The block has no effect then.
func TestKernelRefusedLine(t *testing.T) {
	needsRoot(t)
	for _, backend := range []Backend{NFT, Legacy} {
		tool, err := Open(t.Context(), sdk.IPv4, backend)
		if err != nil {
			t.Skip("needs the backend: ", err)
		}
		b := Block{Table: "nat", Whole: []Chain{{ID: inNat("KUBE-A")}, {ID: inNat("KUBE-B"), Rules: []Rule{"-j KUBE-A", "-j REJECT"}}}} // REJECT is not for nat
		line := new(LineError)
		err = tool.Restore(t.Context(), Plan{b}.Script(backend))
		if !errors.As(err, &line) || backend == NFT && *line != (LineError{inNat("KUBE-B"), "-A KUBE-B -j REJECT", line.Why}) {
			t.Errorf("%s: %v", backend, err)
		}
		if tables, err := tool.Save(t.Context(), "nat"); err != nil || len(tables[inNat("KUBE-B")]) > 0 {
			t.Errorf("%s: after the refused block there is %v, %v", backend, tables, err)
		}
	}
}

// LegacyDrops names the chains of which the program sets the policy to drop, also behind rules.
func TestKernelLegacyDrops(t *testing.T) {
	needsRoot(t)
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tool, err := Open(t.Context(), family, Legacy)
		if err != nil {
			t.Skip("needs the backend: ", err)
		}
		drops := func(want ...string) {
			t.Helper()
			if got, err := LegacyDrops(t.Context(), family, "OTHER"); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s: %v, %v; want %v", family, got, err, want)
			}
		}
		runs(t, tool.Prefix, "-N", "OTHER")
		runs(t, tool.Prefix, "-A", "OTHER", "-j", "DROP")
		runs(t, tool.Prefix, "-A", "FORWARD", "-j", "DROP")
		drops()
		runs(t, tool.Prefix, "-P", "FORWARD", "DROP")
		drops("FORWARD")
		runs(t, tool.Prefix, "-P", "INPUT", "DROP")
		drops("INPUT", "FORWARD")
		runs(t, tool.Prefix, "-I", "FORWARD", "-j", "OTHER")
		drops("INPUT")
		runs(t, tool.Prefix, "-P", "INPUT", "ACCEPT")
		runs(t, tool.Prefix, "-P", "FORWARD", "ACCEPT")
		runs(t, tool.Prefix, "-F")
		runs(t, tool.Prefix, "-X")
	}
}

// retryFault repeats a query while it fails with EFAULT, as on user-mode Linux, up to five times.
func TestRetryFault(t *testing.T) {
	for faults, want := range map[int]error{0: nil, 4: nil, 5: unix.EFAULT} {
		asked := 0
		err := retryFault(func() error {
			if asked++; asked <= faults {
				return unix.EFAULT
			}
			return nil
		})
		if err != want || asked != min(faults+1, 5) {
			t.Errorf("%d faults: %v after %d times", faults, err, asked)
		}
	}
}
