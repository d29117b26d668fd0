// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hooks

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/sdk"
)

// Watch reports what rules do with packets. Systems other than Linux have none.
func Watch(context.Context, sdk.Packet, string, map[string]string, func(sdk.WatchedPacket) error) error {
	return errors.ErrUnsupported
}

// Trace returns an error: it needs Linux.
func Trace(context.Context, sdk.Packet, string) (sdk.Traced, error) {
	return sdk.Traced{}, errors.ErrUnsupported
}
