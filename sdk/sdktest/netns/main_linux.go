// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/pointsman/pointsman/sdk/ledger"
)

// inside is set in the environment of tests that run in their own namespace.
const inside = "POINTSMAN_TEST_NAMESPACE"

// Main runs the tests of a package in a new network namespace if it has the privileges, and
// otherwise in the current one. Call it in TestMain. The iptables lock file is private to the
// namespace, and so is the ledger, which is removed after the tests.
func Main(m interface{ Run() int }) {
	if os.Getuid() == 0 && os.Getenv(inside) == "" {
		os.Exit(rerun())
	}
	if os.Getenv(inside) != "" {
		if err := ledger.Private(); err != nil {
			fmt.Fprintln(os.Stderr, "run tests in a new network namespace:", err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// rerun runs this test binary in a new namespace, and returns its exit code.
func rerun() int {
	dir, err := os.MkdirTemp("", "pointsman-netns-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in a new network namespace:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1", "XTABLES_LOCKFILE="+dir+"/xtables.lock")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return max(1, exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "run tests in a new network namespace:", err)
	return 1
}
