// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package hooks

import (
	"context"
	"errors"

	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// Trace says what becomes of a packet here at this moment.
func Trace(context.Context, sdk.Packet) (sdk.Traced, error) {
	return sdk.Traced{}, errors.ErrUnsupported
}

// TraceWith is Trace, and says which virtual services of IPVS are another program's.
func TraceWith(context.Context, sdk.Packet, func(Server) bool) (sdk.Traced, error) {
	return sdk.Traced{}, errors.ErrUnsupported
}

func marksBy(context.Context) func(set, parts string, p trace.Packet) ([2]uint32, bool, error) {
	return nil
}

func member(string, string, trace.Packet) (bool, error) { return false, errors.ErrUnsupported }
