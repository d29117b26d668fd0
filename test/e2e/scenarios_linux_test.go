// SPDX-License-Identifier: Apache-2.0

package e2e

// A scenario is one story of a cluster, told with real packets.
type scenario struct {
	name string
	play func(*world, mode)
	once bool // it is the same whatever serves
}

func scenarios() []scenario {
	return []scenario{
		{"ClusterIP", clusterIP, false},
		{"NodePort", nodePort, false},
		{"LoadBalancer", loadBalancer, false},
		{"SourceRanges", sourceRanges, false},
		{"ExternalIP", externalIP, false},
		{"LocalPolicy", localPolicy, false},
		{"InternalLocal", internalLocal, false},
		{"Readiness", readiness, false},
		{"Terminating", terminating, false},
		{"Zones", zones, false},
		{"Affinity", affinity, false},
		{"ProxyName", proxyName, false},
		{"PortRenamed", portRenamed, false},
		{"Probes", probes, false},
		{"Events", events, true},
		{"ServerAway", serverAway, true},
		{"WatchExpired", watchExpired, true},
		{"PluginKilled", pluginKilled, false},
		{"HostKilled", hostKilled, false},
	}
}
