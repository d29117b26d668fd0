// SPDX-License-Identifier: Apache-2.0

//go:build !linux && !windows

package wire

import "net"

type peer struct {
	pid int
	uid uint32
}

func peerOf(net.Conn) (peer, error) { return peer{}, nil }

// This system does not say which process is at the other end, so the mode of the socket's
// directory is all that keeps other users out.

func trusted(net.Conn, ...uint32) error { return nil }

func expected(net.Conn, int) error { return nil }
