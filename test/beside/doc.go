// SPDX-License-Identifier: Apache-2.0

// Package beside gives the same cluster to the real kube-proxy and to each of our
// dataplanes, and compares what becomes of packets.
//
//	                     ┌▶ kube-proxy ▶ node, pods, neighbours ◀┐
//	kube-apiserver ──────┼▶ iptables   ▶ node, pods, neighbours ◀┼── the same calls
//	(Services at random) └▶ userspace  ▶ node, pods, neighbours ◀┘   everywhere
//
// Every proxy has a world of its own, in network namespaces; the worlds are alike
// down to the last address. All callers call all frontends of all Services: which endpoint they
// reached, how often it may be another, which address the endpoint saw, or else whether they
// were refused or heard nothing, must be the same in each world. What differs is a
// mistake of ours, or stands in the table of this package with its reason.
//
// What is no frontend is called as well, and pinged; datagrams come in several packets;
// health ports are asked; connections are held open, and flows go on, while Services
// change.
//
// POINTSMAN_E2E=1 runs one of each kind, step by step. POINTSMAN_SOAK=N adds N rounds at
// random, whose seed is printed and can be given as POINTSMAN_SEED. POINTSMAN_BESIDE
// names what takes part besides kube-proxy, such as "iptables-nft,userspace".
//
// One of our hosts runs apart from its plugin, as an ordinary user without a capability;
// with POINTSMAN_APART they all do.
//
// The ipvs mode takes part where the kernel has IPVS, which make test-ipvs sees to. It
// is compared with kube-proxy's iptables mode, which has one meaning with the others.
package beside
