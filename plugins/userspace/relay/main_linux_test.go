// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"os"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) {
	if words := os.Getenv(asRelay); words != "" {
		os.Exit(beRelay(words))
	}
	netns.Main(withLoopback{m})
}

// withLoopback runs tests with the loopback interface up, which is down in a new namespace.
type withLoopback struct{ *testing.M }

func (m withLoopback) Run() int {
	if lo, err := netlink.LinkByName("lo"); err == nil {
		_ = netlink.LinkSetUp(lo) // without root it is the machine's, which is up
	}
	return m.M.Run()
}
