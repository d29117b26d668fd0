// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"
)

// A shared testbed has one set of addresses for all processes that send packets on this
// machine, so only one check at a time may have it.
type shared interface {
	exclusive(context.Context) (done func(), err error)
}

// exclusiveAddr is where the process that has the loopback testbed listens. The kernel gives it
// back when a process ends, however that ends, and each network namespace has one.
const exclusiveAddr = "127.0.0.1:22999"

// exclusiveTime is longer than any check may take.
const exclusiveTime = checkTime + time.Minute

func (loopback) exclusive(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, exclusiveTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp4", exclusiveAddr)
		if err == nil {
			return func() { _ = l.Close() }, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("wait for this run to have the addresses alone: %w", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until no other run of the suite sends packets on this machine: %w", err)
		}
	}
}

// exclusive waits until no other process uses the subject's testbed.
func (s Subject) exclusive(ctx context.Context) (done func(), err error) {
	if g, ok := s.Testbed.(shared); ok {
		return g.exclusive(ctx)
	}
	return func() {}, nil
}
