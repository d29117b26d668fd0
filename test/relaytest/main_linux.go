// SPDX-License-Identifier: Apache-2.0

package relaytest

import (
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

// Main runs tests in a new network namespace, if it may create one, with the loopback interface up.
func Main(m *testing.M) { netns.Main(withLoopback{m}) }

type withLoopback struct{ *testing.M }

func (m withLoopback) Run() int {
	if lo, err := netlink.LinkByName("lo"); err == nil {
		_ = netlink.LinkSetUp(lo) // without root it is the machine's, which is up
	}
	return m.M.Run()
}
