// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// These functions need Linux. See sys_linux.go.

func withMark(uint32) func(network, address string, c syscall.RawConn) error { return nil }

func (r *reader) receiveDevices(bool) error { return errors.ErrUnsupported }
func (r *reader) device() string            { return "" }

func originalDestination(*net.TCPConn) (to netip.AddrPort, err error) {
	return to, errors.ErrUnsupported
}
func acceptRest(*net.TCPListener) []*net.TCPConn { return nil }
func awaitReset(*net.TCPConn) bool               { return false }
