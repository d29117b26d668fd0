// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hooks

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/sdk"
)

// Trace walks a packet through the rules of this system. Systems other than Linux have none.
func Trace(context.Context, sdk.Packet, string) (sdk.Traced, error) {
	return sdk.Traced{}, errors.ErrUnsupported
}
