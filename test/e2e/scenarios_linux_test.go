// SPDX-License-Identifier: Apache-2.0

package e2e

// A scenario is one story of a cluster, told with real packets.
type scenario struct {
	name string
	play func(*world, mode)
}

func scenarios() []scenario {
	return []scenario{
		{"ClusterIP", clusterIP},
		{"NodePort", nodePort},
		{"LoadBalancer", loadBalancer},
		{"SourceRanges", sourceRanges},
		{"ExternalIP", externalIP},
		{"LocalPolicy", localPolicy},
		{"InternalLocal", internalLocal},
		{"Readiness", readiness},
		{"Terminating", terminating},
		{"Zones", zones},
		{"Affinity", affinity},
		{"ProxyName", proxyName},
		{"PortRenamed", portRenamed},
		{"Probes", probes},
		{"ServerAway", serverAway},
		{"WatchExpired", watchExpired},
		{"PluginKilled", pluginKilled},
		{"HostKilled", hostKilled},
	}
}
