// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package wire

import (
	"net"
	"runtime/metrics"
)

// memory returns the approximate resident memory of this process in bytes: what the Go runtime
// has obtained from the system and not returned.
func memory() uint64 {
	samples := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(samples)
	return samples[0].Value.Uint64() - samples[1].Value.Uint64()
}

func setName() {}

func peerOf(net.Conn) (pid int, uid uint32, err error) { return 0, 0, nil }

// This system does not identify the process at the other end. The mode of the socket's
// directory keeps other users out. On Windows the pipe does, and Dial checks its owner.

func checkTrusted(net.Conn, ...uint32) error { return nil }
