// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"

	"github.com/vishvananda/netlink"
)

// Loopback makes 127.0.0.1 an address, which it is not in a new network namespace: a cluster that
// is started there listens on it.
func Loopback() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find the loopback device: %w", err)
	}
	return netlink.LinkSetUp(lo)
}
