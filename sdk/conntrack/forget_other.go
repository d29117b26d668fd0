// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package conntrack

import (
	"errors"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

// Forget does nothing: only Linux tracks connections in this way.
func Forget(family sdk.Family, s Served) (int, error) {
	if s.Empty() {
		return 0, nil
	}
	return 0, errors.ErrUnsupported
}

// ForgetFailed does nothing: only Linux tracks connections in this way.
func ForgetFailed(sdk.Family, func(reply netip.AddrPort) bool) (int, error) {
	return 0, errors.ErrUnsupported
}

// ForgetEarly does nothing: only Linux tracks connections in this way.
func ForgetEarly(sdk.Family, []sdk.Service, func(netip.Addr) bool, func()) (int, error) {
	return 0, errors.ErrUnsupported
}
