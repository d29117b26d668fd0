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

// suitesEnv is the variable that make e2e sets. Without it, suites are skipped, since they take minutes.
const suitesEnv = "POINTSMAN_E2E"

// Binaries is the folder of the binaries under test while a suite runs.
var Binaries = os.Getenv("POINTSMAN_BIN")

// Main builds the binaries under test, and runs the tests of a suite in a new network namespace. Its loopback device is
// up, so that an API server can listen.
func Main(m *testing.M) {
	if os.Getenv(suitesEnv) == "" || os.Getuid() != 0 {
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

// Need skips a test if make e2e does not run it, or if this machine lacks something that the suites need.
func Need(t testing.TB) {
	t.Helper()
	switch {
	case os.Getuid() != 0:
		t.Skip("needs root: it makes network namespaces")
	case os.Getenv(suitesEnv) == "":
		t.Skip("takes minutes, and a kube-apiserver: make e2e runs it")
	}
	findServer(t)
}
