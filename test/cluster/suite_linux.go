// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/built"
)

// asked is set by make e2e: without it suites, which take minutes, are skipped.
const asked = "POINTSMAN_E2E"

// Binaries is the folder of the binaries under test while a suite runs.
var Binaries = os.Getenv("POINTSMAN_BIN")

// Main runs the tests of a suite in a network namespace that has a loopback device, where an API server can listen,
// and builds the binaries that they test.
func Main(m *testing.M) {
	if os.Getenv(asked) == "" || os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	netns.Main(suite{m})
}

type suite struct{ *testing.M }

func (s suite) Run() int {
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	if err == nil && Binaries == "" {
		Binaries, err = os.MkdirTemp("", "pointsman-bin-")
		if err == nil {
			defer os.RemoveAll(Binaries)
			err = built.All(Binaries)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "set up the suite:", err)
		return 1
	}
	return s.M.Run()
}

// Need skips a test of a suite that was not asked for, or for which this machine lacks something.
func Need(t testing.TB) {
	t.Helper()
	switch {
	case os.Getuid() != 0:
		t.Skip("needs root: it makes network namespaces")
	case os.Getenv(asked) == "":
		t.Skip("takes minutes, and a kube-apiserver: make e2e runs it")
	}
	find(t)
}
