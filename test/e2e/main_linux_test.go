// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"testing"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/cluster"
)

// asked is set in the environment by make e2e: without it these tests, which take
// minutes, are left out.
const asked = "POINTSMAN_E2E"

// binaries is the folder of the binaries under test, once they are built.
var binaries string

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" || os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	netns.Main(suite{m})
}

// A suite builds what it tests, in a namespace where the API server has a loopback.
type suite struct{ *testing.M }

func (s suite) Run() int {
	err := cluster.Loopback()
	if err == nil {
		binaries, err = os.MkdirTemp("", "pointsman-e2e-")
		if err == nil {
			defer os.RemoveAll(binaries)
			err = built.All(binaries)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building what is tested:", err)
		return 1
	}
	return s.M.Run()
}

// need skips a test that was not asked for, or that this machine cannot run.
func need(t testing.TB) {
	t.Helper()
	switch {
	case os.Getuid() != 0:
		t.Skip("needs root: it makes network namespaces")
	case os.Getenv(asked) == "":
		t.Skip("takes minutes, and a kube-apiserver: make e2e runs it")
	}
	if _, err := os.Stat("../../bin/peers/kube-apiserver"); err != nil {
		t.Skip("needs the real kube-apiserver: make peers builds one, in some minutes")
	}
}
