// SPDX-License-Identifier: Apache-2.0

/*
Package e2e runs the whole system as a cluster does: a real kube-apiserver with RBAC
over a real etcd, the real binaries on two nodes, and real packets from clients and
pods. Everything happens in network namespaces that the test makes:

	                         ┌─ node-a ─┬ 10.244.1.2  fd00:10:244:1::2   pod
	198.18.0.7               │ :10256   └ 10.244.1.3  fd00:10:244:1::3   pod
	client ──────── router ──┤
	               API server└─ node-b ─┬ 10.244.2.2  fd00:10:244:2::2   pod
	                                    └ 10.244.2.3  fd00:10:244:2::3   pod

There are as many of these lands as there are ways to serve, iptables-nft,
iptables-legacy and userspace, all with the same addresses and on the same API server.
Whatever a test writes there, every land must come to serve; so an outage, and the
minutes that a story takes, are had once for all of them.

In some lands the hosts run apart from their plugins, each an ordinary user without a
capability; with POINTSMAN_APART they all do. No story knows of it.

Each node reaches the API server through a way of its own, which a test can cut. No
controller runs: the tests write EndpointSlices and the status of Services
themselves, through the API, as the controllers of a cluster would. Only the move from
kube-proxy has those of DaemonSets and Jobs, whose pods the test's kubelet runs.

`make e2e` runs it; it needs root, etcd, and the API server that `make peers` builds.
*/
package e2e
