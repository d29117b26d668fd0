// SPDX-License-Identifier: Apache-2.0

// Package beside gives the same cluster to the real kube-proxy and to each of our
// dataplanes, and compares what happens to packets.
//
//	                     ┌▶ kube-proxy ▶ node, pods, neighbours ◀┐
//	kube-apiserver ──────┼▶ iptables   ▶ node, pods, neighbours ◀┼── the same calls
//	(Services at random) └▶ userspace  ▶ node, pods, neighbours ◀┘   everywhere
//
// Every proxy has a world of its own in network namespaces, with the same addresses. All
// callers call all frontends of all Services. The endpoint that they reach, whether it
// may be another one the next time, the address that the endpoint sees, or how the call
// fails, must be the same in each world. A difference is an error of ours, or is listed
// in the table of this package with its reason.
//
// The package also calls and pings what is no frontend, sends datagrams of several
// packets, asks health ports, and keeps connections and flows while Services change.
//
// POINTSMAN_E2E=1 runs one contest of each kind, step by step. POINTSMAN_SOAK=N adds N
// random rounds; POINTSMAN_SEED repeats those of a seed that a run has printed.
// POINTSMAN_BESIDE names the proxies besides kube-proxy, such as
// "iptables-nft,userspace". One of our hosts runs apart from its plugin, as an ordinary
// user without capabilities; with POINTSMAN_APART all of them do.
//
// The ipvs mode takes part if the kernel has IPVS, as in make test-ipvs. It is compared
// with kube-proxy's iptables mode, in which a Service means the same as in ours.
//
// The tests must not touch the network of the machine. Start reading at
// beside_linux_test.go.
package beside
