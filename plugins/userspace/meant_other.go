// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package userspace

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
)

// meant is where the caller sent the connection to; only Linux can lead it
// elsewhere.
func meant(*net.TCPConn) (netip.AddrPort, error) { return netip.AddrPort{}, errors.ErrUnsupported }

func marked(uint32) func(network, address string, c syscall.RawConn) error { return nil }

func hearDevices(*net.UDPConn) error { return errors.ErrUnsupported }
