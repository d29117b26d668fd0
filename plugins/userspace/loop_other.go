// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package userspace

import "context"

// loops exist on Linux alone.
type loops struct{}

func (*loops) forget() {}

// listenBest opens a listener at p.
func (r *relay) listenBest(ctx context.Context, p place) (listener, error) {
	return r.listenPlain(ctx, p)
}
