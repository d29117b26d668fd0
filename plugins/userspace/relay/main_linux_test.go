// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/pointsman/pointsman/sdk"
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

// asRelay is an environment variable that makes the test program a relay. Its value is the address at which it listens, and
// the endpoint.
const asRelay = "POINTSMAN_TEST_RELAY"

// beRelay serves until the end of standard input.
func beRelay(words string) int {
	front, back, _ := strings.Cut(words, " ")
	r := New()
	defer r.Stop()
	web := svc("web", "cluster-ip "+front, back)
	s, err := r.Listen(context.Background(), sdk.TCP, web.Frontends[0].Addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s.Serve(&Target{NewService(web), web.Frontends[0]})
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}
