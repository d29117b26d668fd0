// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import (
	"errors"
	"net"
	"syscall"
)

func withMark(uint32) func(network, address string, c syscall.RawConn) error { return nil }

func receiveDevices(*net.UDPConn) error { return errors.ErrUnsupported }
