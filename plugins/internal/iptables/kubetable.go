// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"

	"github.com/pointsman/pointsman/sdk"
)

// SweepKubeProxy removes, or only names, the tables that kube-proxy in its nftables mode
// has. No dataplane of ours has tables like them, so every one may see to it: that which
// serves is not asked to clean up.
func SweepKubeProxy(dryRun bool) ([]string, error) {
	var gone []string
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		there, err := HasTable(family, "kube-proxy")
		if err != nil {
			return gone, err
		}
		if !there {
			continue
		}
		if !dryRun {
			if err := DeleteTable(family, "kube-proxy"); err != nil {
				return gone, err
			}
		}
		gone = append(gone, fmt.Sprintf("nft: delete the %s table kube-proxy", family))
	}
	return gone, nil
}
