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

// A shared ground has one set of addresses for all who send packets on this
// machine, so only one check at a time may have it.
type shared interface {
	turn(context.Context) (done func(), err error)
}

// turnAddr is where whoever has the loopback ground listens. The kernel gives it
// back when a process ends, however that ends, and each network namespace has one.
const turnAddr = "127.0.0.1:22999"

// turnTime is longer than any check may take.
const turnTime = checkTime + time.Minute

func (loopback) turn(ctx context.Context) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, turnTime)
	defer cancel()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		var lc net.ListenConfig
		l, err := lc.Listen(ctx, "tcp4", turnAddr)
		if err == nil {
			return func() { _ = l.Close() }, nil
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("wait for the turn of this run: %w", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait until no other run of the suite sends packets on this machine: %w", err)
		}
	}
}

// turn waits until nobody else uses the subject's ground.
func (s Subject) turn(ctx context.Context) (done func(), err error) {
	if g, ok := s.Ground.(shared); ok {
		return g.turn(ctx)
	}
	return func() {}, nil
}
