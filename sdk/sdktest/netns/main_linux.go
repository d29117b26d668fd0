// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/ledger"
)

// inside is set in the environment of tests that run in their own namespace.
const inside = "POINTSMAN_TEST_NAMESPACE"

// Main runs the tests of a package in a new network namespace if it has the privileges, and
// otherwise in the current one. Call it in TestMain. /run is private to the namespace, and so are
// the ledger and the iptables lock file in it.
func Main(m interface{ Run() int }) {
	var err error
	switch {
	case os.Getenv(inside) != "":
		err = ledger.Private()
	case os.Getuid() == 0:
		err = enter()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "run tests in a new network namespace:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// enter executes this test binary again in new namespaces, where the kernel starts the threads of
// the new program. It returns only after an error.
func enter() error {
	runtime.LockOSThread() // the namespaces are those of the thread
	if err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := errors.Join(os.Setenv(inside, "1"), os.Setenv("XTABLES_LOCKFILE", "/run/xtables.lock")); err != nil {
		return err
	}
	return unix.Exec("/proc/self/exe", os.Args, os.Environ())
}
