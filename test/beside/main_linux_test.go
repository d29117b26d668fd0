// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/built"
)

// asked is set in the environment by make e2e: without it these tests, which need
// Kubernetes' own binaries, are left out.
const asked = "POINTSMAN_E2E"

// binaries is the folder of the binaries under test, once they are built.
var binaries = os.Getenv("POINTSMAN_BIN")

func TestMain(m *testing.M) {
	if os.Getenv(asked) == "" || os.Getuid() != 0 {
		os.Exit(m.Run())
	}
	os.Exit(run(m))
}

// run builds what is tested, unless it is built, and tests it. It need not be in a
// namespace: the worlds are.
func run(m *testing.M) int {
	if binaries != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "pointsman-beside-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = errors.Join(build(dir), os.Chmod(dir, 0o755)) // for hosts that run apart
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "building what is tested:", err)
		return 1
	}
	binaries = dir
	return m.Run()
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
		t.Skip("takes a minute, and Kubernetes' own binaries: make e2e runs it")
	}
	if _, err := os.Stat(kubeProxy); err != nil {
		t.Skip("needs the real kube-proxy: make peers builds one, in some minutes")
	}
}
