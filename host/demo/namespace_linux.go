// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/ledger"
)

// insideEnv is set where the demo runs in a network namespace of its own.
const insideEnv = "POINTSMAN_DEMO_INSIDE"

// inside reports whether this process has a network of its own, in which rules may
// be written without harm to the machine.
func inside() bool { return os.Getenv(insideEnv) != "" }

// again runs this very command in a network namespace of its own, until it ends. Its mount
// namespace is its own, too, so that its ledger ends with it.
func again(ctx context.Context, out io.Writer) error {
	if os.Getuid() != 0 || inside() {
		return errNoNamespace
	}
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errNoNamespace, err)
	}
	err := cmd.Wait()
	if ctx.Err() != nil && !cmd.ProcessState.Exited() {
		return errors.Join(errors.New("the demo does not end, and was killed"), err)
	}
	return err
}

// ownAddr is an address that the network of the demo's own has besides 127.0.0.0/8:
// the kernel hides no caller behind one of those.
var ownAddr = []byte{10, 77, 77, 77}

// raise brings the loopback interface up, which in a new namespace is down, and
// gives it an address. It also sees to a ledger that is as short-lived.
func raise() error {
	if err := ledger.Private(); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer unix.Close(fd)
	up, _ := unix.NewIfreq("lo") // only a longer name is an error
	up.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	addr, _ := unix.NewIfreq("lo:0")
	_ = addr.SetInet4Addr(ownAddr) // it has four bytes
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, addr); err != nil {
		return fmt.Errorf("give lo an address: %w", err)
	}
	return nil
}
