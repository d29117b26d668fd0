// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package flows

import (
	"errors"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
)

func eachTranslated(sdk.Family, func(flow, netip.AddrPort)) error { return errors.ErrUnsupported }

// Local returns the addresses of this node's interfaces.
func Local() (all []netip.Prefix, err error) {
	addrs, err := Addrs(net.InterfaceAddrs)
	for addr := range addrs {
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return all, err
}

// Uplinks returns nothing: no rules are written on this system.
func Uplinks(sdk.Family) ([]Uplink, error) { return nil, nil }
