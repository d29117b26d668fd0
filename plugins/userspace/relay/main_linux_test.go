// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/relaytest"
)

func TestMain(m *testing.M) {
	if words := os.Getenv(asRelay); words != "" {
		os.Exit(beRelay(words))
	}
	relaytest.Main(m)
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
