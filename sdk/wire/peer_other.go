// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package wire

import "net"

type peer struct {
	pid int
	uid uint32
}

func peerOf(net.Conn) (peer, error) { return peer{}, nil }

// This system does not say which process is at the other end. The mode of the socket's directory
// keeps other users out; on Windows the pipe does, and Dial looks whose it is.

func trusted(net.Conn, ...uint32) error { return nil }
