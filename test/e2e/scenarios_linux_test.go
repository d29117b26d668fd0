// SPDX-License-Identifier: Apache-2.0

package e2e

// A scenario is a sequence of changes in a cluster. Calls check what happens to packets after each change.
type scenario struct {
	name string
	play func(*world)
}

func scenarios() []scenario {
	return []scenario{
		{"ClusterIP", clusterIP},
		{"PortRenamed", portRenamed},
		{"Events", events},
		{"SwapServerAway", swapServerAway},
		{"WatchExpired", watchExpired},
		{"HostKilled", hostKilled},
	}
}
