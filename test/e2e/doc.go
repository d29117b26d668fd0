// SPDX-License-Identifier: Apache-2.0

/*
Package e2e tests the whole system as in a cluster: a real kube-apiserver with RBAC
over a real etcd, the real binaries on two nodes, and real packets from clients and
pods. Everything happens in network namespaces that the tests make:

	                         ┌─ node-a ─┬ 10.244.1.2  fd00:10:244:1::2   pod
	198.18.0.7               │ :10256   └ 10.244.1.3  fd00:10:244:1::3   pod
	client ──────── router ──┤
	               API server└─ node-b ─┬ 10.244.2.2  fd00:10:244:2::2   pod
	                                    └ 10.244.2.3  fd00:10:244:2::3   pod

There is one such network (a land) for each dataplane and form (see modes), all with
the same addresses and the same API server. Each land must serve everything that a test
writes to the API server, so each scenario runs once for all dataplanes. In some lands
the hosts run apart from their plugins, as ordinary users without capabilities, with
POINTSMAN_APART in all lands. No scenario depends on that.

Each node has its own connection to the API server, which a test can cut. No
controller runs: the tests write EndpointSlices and the status of Services through
the API, as the controllers of a cluster would. Only the move from kube-proxy has the
controllers of DaemonSets and Jobs; the test's kubelet runs their pods.

The tests must not touch the network of the machine. Start reading at
scenarios_linux_test.go and world_linux_test.go. `make e2e` runs them; they need root,
etcd, and the API server that `make peers` builds.
*/
package e2e
