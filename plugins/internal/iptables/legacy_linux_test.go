// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// countTable counts what the program prints, chain by chain.
func TestKernelCounts(t *testing.T) {
	needsRoot(t)
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tool, err := Open(t.Context(), family, Legacy)
		if err != nil {
			t.Skip("needs the backend: ", err)
		}
		run := func(args ...string) { runs(t, tool.Prefix, append([]string{"-t", "nat"}, args...)...) }
		run("-N", "KUBE-A")
		run("-N", "KUBE-EMPTY")
		run("-A", "KUBE-A", "-p", "tcp", "-j", "RETURN")
		run("-A", "KUBE-A", "-m", "comment", "--comment", "leads nowhere")
		run("-A", "KUBE-A", "-j", "KUBE-EMPTY")
		run("-A", "PREROUTING", "-j", "KUBE-A")
		run("-A", "OUTPUT", "-p", "udp", "-g", "KUBE-A")
		run("-A", "OUTPUT", "-m", "comment", "--comment", "nor this")
		run("-A", "OUTPUT", "-j", "KUBE-A")
		got, err := countTable(family, "nat")
		if err != nil {
			t.Fatal(err)
		}
		if want := map[string]int{"KUBE-A": 3, "KUBE-EMPTY": 0}; !maps.Equal(got.Rules, want) {
			t.Errorf("%s: rules %v, want %v", family, got.Rules, want)
		}
		if n := got.Leads[way{"OUTPUT", "KUBE-A"}]; n != 2 || got.Leads[way{"PREROUTING", "KUBE-A"}] != 1 || got.others != 4 {
			t.Errorf("%s: %d others, of which lead on: %v", family, got.others, got.Leads)
		}
		run("-F")
		run("-X")
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
			if got, err := LegacyDrops(family, "OTHER"); err != nil || !slices.Equal(got, want) {
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

// A question that user-mode Linux takes for one with a bad address is asked again; what goes on
// being bad, and every other answer, is told.
func TestAsksAgain(t *testing.T) {
	for _, c := range []struct {
		answers []error // one each time; the last one for ever
		want    error
		asked   int
	}{
		{[]error{nil}, nil, 1},
		{[]error{unix.EFAULT, unix.EFAULT, nil}, nil, 3},
		{[]error{unix.EFAULT, unix.EAGAIN}, unix.EAGAIN, 2},
		{[]error{unix.EFAULT}, unix.EFAULT, 5},
	} {
		asked := 0
		err := retryFault(func() error {
			asked++
			return c.answers[min(asked, len(c.answers))-1]
		})
		if err != c.want || asked != c.asked {
			t.Errorf("%v: %v after %d times, want %v after %d", c.answers, err, asked, c.want, c.asked)
		}
	}
}
