// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package userspace

import (
	"errors"
	"net"
	"syscall"
)

func marked(uint32) func(network, address string, c syscall.RawConn) error { return nil }

func hearDevices(*net.UDPConn) error { return errors.ErrUnsupported }
