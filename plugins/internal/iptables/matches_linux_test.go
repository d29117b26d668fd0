// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// missingMatches names a match that the kernel does not have, in both families and backends.
func TestKernelMissingMatches(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it asks for matches, which the kernel loads")
	}
	for _, backend := range []Backend{NFT, Legacy} {
		for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
			tool := Tool{Family: family, Backend: backend}
			if got := tool.missingMatches(append([]string{"nosuch"}, matches...)...); !slices.Equal(got, []string{"CONFIG_NETFILTER_XT_MATCH_NOSUCH"}) {
				t.Errorf("%s %s: %q", family, backend, got)
			}
		}
	}
}
