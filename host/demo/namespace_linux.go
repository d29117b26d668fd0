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
	"unsafe"
)

// insideEnv is set where the demo runs in a network namespace of its own.
const insideEnv = "POINTSMAN_DEMO_INSIDE"

// inside reports whether this process has a network of its own, in which rules may
// be written without harm to the machine.
func inside() bool { return os.Getenv(insideEnv) != "" }

// mayLeave reports whether it could have one.
func mayLeave() bool { return os.Getuid() == 0 && !inside() }

// again runs this very command in a network namespace of its own, until it ends.
func again(ctx context.Context, out io.Writer) error {
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", errNoNamespace, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // ends with the command
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		_ = cmd.Process.Signal(os.Interrupt)
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("the demo does not end, and was killed"), cmd.Process.Kill(), <-ended)
	}
}

// ownAddr is an address that the network of the demo's own has besides 127.0.0.0/8:
// the kernel hides no caller behind one of those.
var ownAddr = [4]byte{10, 77, 77, 77}

// raise brings the loopback interface up, which in a new namespace is down, and
// gives it an address.
func raise() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM, 0)
	if err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	defer syscall.Close(fd)
	up := ifreq{name: name("lo")}
	*(*uint16)(unsafe.Pointer(&up.value)) = syscall.IFF_UP
	if err := up.ask(fd, syscall.SIOCSIFFLAGS); err != nil {
		return fmt.Errorf("bring lo up: %w", err)
	}
	addr := ifreq{name: name("lo:0")}
	*(*syscall.RawSockaddrInet4)(unsafe.Pointer(&addr.value)) = syscall.RawSockaddrInet4{Family: syscall.AF_INET, Addr: ownAddr}
	if err := addr.ask(fd, syscall.SIOCSIFADDR); err != nil {
		return fmt.Errorf("give lo an address: %w", err)
	}
	return nil
}

// An ifreq is what the kernel is asked of an interface: netdevice(7).
type ifreq struct {
	name  [16]byte
	value [6]uint32
}

func name(text string) (n [16]byte) {
	copy(n[:], text)
	return n
}

func (r *ifreq) ask(fd int, what uintptr) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), what, uintptr(unsafe.Pointer(r))); errno != 0 {
		return errno
	}
	return nil
}
