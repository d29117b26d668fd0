// SPDX-License-Identifier: Apache-2.0

/*
Package health answers what asks how the node is doing: the kubelet, load
balancers, Prometheus, systemd. What they hear is one assessment (assessment.go), which
status says too. The package acts on nothing, and its servers go on
answering while a plugin is away.

	:10256  /healthz /livez /readyz            probes.go    ◀─ Assess: live, healthy, eligible, ready?
	:10249  /metrics /metrics/slis             metrics.go, collect.go, samples.go
	        /proxyMode /configz /statusz …     endpoints.go
	:PORT   each Service's healthCheckNodePort checks.go    ◀─ tracker: how many endpoints are ready here?

Ports, paths, bodies and the kubeproxy_ names are kube-proxy's, so that probes,
dashboards and alerts keep working; what is ours alone is called pointsman_.
*/
package health
