// SPDX-License-Identifier: Apache-2.0

/*
Package health answers those who ask how the node is doing: the kubelet, load
balancers, Prometheus, systemd. It decides nothing, and has servers of its own, so
that they go on answering while a plugin is away.

	:10256  /healthz /livez /readyz            probes.go    ◀─ progress: is what changed applied in time?
	:10249  /metrics /metrics/slis             metrics.go, collect.go, samples.go
	        /proxyMode /configz /statusz …     pages.go
	:PORT   each Service's healthCheckNodePort checks.go    ◀─ tracker: how many endpoints are ready here?

Ports, paths, bodies and the kubeproxy_ names are kube-proxy's, so that probes,
dashboards and alerts keep working; what is ours alone is called pointsman_.
*/
package health
