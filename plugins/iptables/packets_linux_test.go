// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"os"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/field"
)

// world returns the node of this test and the hosts around it.
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

// TestKernelConforms runs the conformance suite with real packets: every scenario and every check of the contract.
func TestKernelConforms(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(k.dir) })
		s.Options = k.options()
		s.Testbed = g
		s.Disturb = func(context.Context) error {
			for _, program := range []string{"iptables-", "ip6tables-"} {
				k.run(program+string(k.backend), "-t", "nat", "-F")
			}
			return nil
		}
		k.foreign()
		k.foreignMarks()
		s.Foreign = func(context.Context) (string, error) { return k.notOurs(), nil }
		sdktest.Conform(k.T, s)
	})
}

// TestKernelField runs cases from public bug reports.
func TestKernelField(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		p := k.start()
		field.Check(k.T, g, p, true)
		field.Beside(k.T, g, p, "iptables-"+string(k.backend), true, true)
	})
}
