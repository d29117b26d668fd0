// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/cluster"
)

// asked is set in the environment by make e2e: without it these tests, which take
// minutes, are left out.
const asked = "POINTSMAN_E2E"

// binaries is the folder of the binaries under test, once they are built. A guest of user-mode
// Linux finds them built.
var binaries = os.Getenv("POINTSMAN_BIN")

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" || os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	netns.Main(suite{m})
}

// A suite builds what it tests, in a namespace where the API server has a loopback.
type suite struct{ *testing.M }

func (s suite) Run() int {
	if cluster.IsAttached() {
		timeout = 10 * time.Minute // programs that elsewhere begin in a second take up to a minute
	}
	err := loopback()
	if err == nil && binaries == "" {
		binaries, err = os.MkdirTemp("", "pointsman-e2e-")
		if err == nil {
			defer os.RemoveAll(binaries)
			err = errors.Join(build(binaries), os.Chmod(binaries, 0o755)) // for hosts that run apart
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building what is tested:", err)
		return 1
	}
	return s.M.Run()
}

// loopback makes 127.0.0.1 an address, which it is not in a new namespace.
func loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback device: %w", err)
	}
	return netlink.LinkSetUp(lo)
}

func build(dir string) error {
	mains, err := filepath.Glob("../../plugins/*/pointsman-dataplane-*/main.go")
	if err != nil {
		return err
	}
	packages := []string{"./host/pointsman"}
	for _, main := range mains {
		packages = append(packages, "./"+strings.TrimPrefix(filepath.Dir(main), "../../"))
	}
	return built.Into(dir, "", packages...)
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
