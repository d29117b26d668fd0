// SPDX-License-Identifier: Apache-2.0

package e2e

// A scenario is one story of a cluster, told with real packets.
type scenario struct {
	name string
	play func(*world)
}

func scenarios() []scenario {
	return []scenario{
		{"ClusterIP", clusterIP},
		{"NodePort", nodePort},
		{"LoadBalancer", loadBalancer},
		{"Types", types},
		{"Stacks", stacks},
		{"SourceRanges", sourceRanges},
		{"ExternalIP", externalIP},
		{"LocalPolicy", localPolicy},
		{"InternalLocal", internalLocal},
		{"Readiness", readiness},
		{"Terminating", terminating},
		{"Zones", zones},
		{"Distribution", distribution},
		{"Affinity", affinity},
		{"ProxyName", proxyName},
		{"HeadlessLabel", headlessLabel},
		{"PortRenamed", portRenamed},
		{"PortMoved", portMoved},
		{"Probes", probes},
		{"Events", events},
		{"NodeGoes", nodeIsRemoved},
		{"SwapServerAway", swapServerAway},
		{"WatchExpired", watchExpired},
		{"HostKilled", hostKilled},
	}
}
