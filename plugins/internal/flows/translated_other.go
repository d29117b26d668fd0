// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package flows

import (
	"errors"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

func translated(sdk.Family, func(flow, netip.AddrPort)) error { return errors.ErrUnsupported }
