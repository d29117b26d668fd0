// SPDX-License-Identifier: Apache-2.0

// Package beside tests the whole system as in a cluster: a real kube-apiserver with RBAC over a real etcd, the real
// binaries, and real packets from clients and pods. The real kube-proxy and each of our dataplanes serve the same
// cluster, and the tests compare what happens to packets.
//
//	                     ┌▶ kube-proxy ▶ node, pods, neighbours ◀┐
//	kube-apiserver ──────┼▶ iptables   ▶ node, pods, neighbours ◀┼── the same calls
//	                     └▶ userspace  ▶ node, pods, neighbours ◀┘   everywhere
//
// Every proxy has its own network namespaces (a world) with the same addresses. All
// callers call all frontends of all Services. In all worlds, the calls must reach the
// same endpoints, which must see the same client addresses, or the calls must fail in
// the same way. Any other difference is a fault of ours, unless the table
// testdata/differences.txt lists it with its reason.
//
// The package also calls and pings addresses and ports that are no frontend, sends
// datagrams of several packets, and keeps connections and flows while Services change.
// It compares probes, metrics and health checks, tells stories of a cluster (the API
// server is away, a host is killed), and moves nodes from kube-proxy by the commands of
// the pages. No controller runs, except those of DaemonSets and Jobs in the moves: the
// tests write EndpointSlices themselves.
//
// POINTSMAN_BESIDE names the proxies besides kube-proxy, such as
// "iptables-nft,userspace". Two of our hosts run apart from their plugins, as
// ordinary users without capabilities; with POINTSMAN_APART all of them do.
//
// The ipvs mode takes part if the kernel has IPVS, as in make test-ipvs. It is compared
// with kube-proxy's iptables mode, in which a Service means the same as in ours.
//
// The tests must not touch the network of the machine. `make e2e` runs them; they need
// root, etcd, and what `make peers` builds. Start reading at beside_linux_test.go and
// stories_linux_test.go.
package beside
