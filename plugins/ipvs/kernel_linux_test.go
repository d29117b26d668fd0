// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"os"
	"os/exec"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// world is the node of this test, and hosts around it.
func world(t *testing.T) *netns.Ground {
	t.Helper()
	needsIPVS(t)
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

func needsIPVS(t *testing.T) {
	t.Helper()
	switch {
	case os.Getuid() != 0:
		t.Skip("needs root: it writes to a kernel, in a namespace of its own")
	case !ipvsThere():
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
}

// run runs a tool, as an operator would.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

// The suite, with real packets: every scenario, and every line of the contract.
func TestKernelIPVSConforms(t *testing.T) {
	g := world(t)
	dir := t.TempDir()
	s := sdktest.InProcess(Description, func() sdk.Dataplane { return New(dir) })
	s.Ground = g
	s.Disturb = func(context.Context) error { return exec.Command("ipvsadm", "-C").Run() }
	sdktest.Conform(sdktest.Testing(t), s)
}
