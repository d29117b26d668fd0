// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import (
	"context"
	"errors"
	"net/netip"
	"syscall"
)

// loops exist on Linux alone.
type loops struct{}

func (*loops) forget() {}

// listenTCP opens a listener.
func (r *Relay) listenTCP(ctx context.Context, at netip.AddrPort) (listener, error) {
	return r.listenPortable(ctx, at)
}

// What only Linux has: marks on packets, and the device by which a datagram came in.

func withMark(uint32) func(network, address string, c syscall.RawConn) error { return nil }

func (p *packets) receiveDevices() error { return errors.ErrUnsupported }
func (p *packets) device() string        { return "" }
