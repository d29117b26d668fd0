// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package relay

import (
	"net"
	"net/netip"
	"syscall"

	"github.com/pointsman/pointsman/sdk"
)

// reusePort does nothing where a port has one owner.
func reusePort(string, string, syscall.RawConn) error { return nil }

// alive asks whether the socket is still open.
func alive(c syscall.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	return raw.Control(func(uintptr) {})
}

// bindOnce binds a TCP socket and closes it at once.
func bindOnce(at netip.AddrPort) error {
	l, err := net.Listen(network(sdk.TCP, at), at.String())
	if err != nil {
		return err
	}
	return l.Close()
}
