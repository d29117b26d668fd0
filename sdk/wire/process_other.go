// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package wire

import (
	"net"
	"runtime/metrics"
)

// memory returns about how many bytes of this process are resident: what the Go
// runtime has of the system and has not given back.
func memory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

func takeName() {}

type peer struct {
	pid int
	uid uint32
}

func peerOf(net.Conn) (peer, error) { return peer{}, nil }

// This system does not say which process is at the other end. The mode of the socket's directory
// keeps other users out; on Windows the pipe does, and Dial looks whose it is.

func trusted(net.Conn, ...uint32) error { return nil }
