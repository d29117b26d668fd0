// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import (
	"errors"
	"net"
	"syscall"
)

// What only Linux has: marks on packets, and the device by which a datagram came in.

func withMark(uint32) func(network, address string, c syscall.RawConn) error { return nil }

func receiveDevices(*net.UDPConn) error { return errors.ErrUnsupported }

func (p *packets) receiveDevice(bool) {}
func (p *packets) device() string     { return "" }
