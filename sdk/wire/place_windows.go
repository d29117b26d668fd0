// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/windows"

	"github.com/pointsman/pointsman/internal/pipe"
)

// addressForm is how an address is written at which a plugin listens by itself, for people.
const addressForm = pipe.Prefix + "NAME"

// exampleOf is such an address, of the dataplane of that name.
func exampleOf(name string) string { return pipe.Prefix + "pointsman-" + name }

func at(address string) (Target, error) {
	if !pipe.IsPath(address) {
		return Target{}, fmt.Errorf("address %q: want a pipe, %s", address, addressForm)
	}
	return Target{Network: overPipe, Address: address}, nil
}

// open connects to what listens there. A pipe must be of this user, of administrators or of the
// system.
func (t Target) open(ctx context.Context) (net.Conn, error) {
	if t.Network == overPipe {
		return pipe.Dial(ctx, t.Address)
	}
	return (&net.Dialer{}).DialContext(ctx, t.Network, t.Address)
}

// listen makes the pipe, which is open to this user, administrators and the system alone.
func (s socket) listen() (net.Listener, error) {
	if _, err := at(s.address); err != nil {
		return nil, err
	}
	return pipe.Listen(s.address)
}

// A peer is the process at the other end of a pipe, which listens there; zero: it is not known.
type peer struct{ pid int }

func peerOf(conn net.Conn) (peer, error) {
	handle, ok := conn.(interface{ Fd() uintptr })
	if !ok {
		return peer{}, errors.New("the connection has no handle")
	}
	var pid uint32
	if err := windows.GetNamedPipeServerProcessId(windows.Handle(handle.Fd()), &pid); err != nil {
		return peer{}, fmt.Errorf("ask which process listens: %w", err)
	}
	return peer{int(pid)}, nil
}

// trusted has nothing to add: the pipe's owner was looked at when it was opened.
func trusted(net.Conn) error { return nil }

// expected reports why the other end is not process pid, if so; with a pid of zero, any may be.
func expected(conn net.Conn, pid int) error {
	if pid == 0 {
		return nil
	}
	p, err := peerOf(conn)
	if err == nil && p.pid != pid {
		err = fmt.Errorf("process %d is at the other end, and not %d", p.pid, pid)
	}
	return err
}
