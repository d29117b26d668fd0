// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// What only Linux has: marks on packets, the device by which a datagram came in, where a redirected
// connection was sent to, what waits in a listening socket, and the reset of a connection that is not read.

func withMark(uint32) func(network, address string, c syscall.RawConn) error { return nil }

func (r *reader) receiveDevices(bool) error { return errors.ErrUnsupported }
func (r *reader) device() string            { return "" }

func originalDestination(*net.TCPConn) (to netip.AddrPort, err error) {
	return to, errors.ErrUnsupported
}
func acceptRest(*net.TCPListener) []*net.TCPConn { return nil }
func awaitReset(*net.TCPConn) bool               { return false }
