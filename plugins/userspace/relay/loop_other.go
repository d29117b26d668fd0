// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package relay

import (
	"context"
	"net/netip"
)

// loops exist on Linux alone.
type loops struct{}

func (*loops) forget() {}

// listenTCP opens a listener.
func (r *Relay) listenTCP(ctx context.Context, at netip.AddrPort) (listener, error) {
	return r.listenPortable(ctx, at)
}
