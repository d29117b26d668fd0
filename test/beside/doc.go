// SPDX-License-Identifier: Apache-2.0

// Package beside gives the same cluster to the real kube-proxy and to each of our
// dataplanes, and compares what becomes of packets.
//
//	                     ┌▶ kube-proxy ▶ node, pods, neighbours ◀┐
//	kube-apiserver ──────┼▶ iptables   ▶ node, pods, neighbours ◀┼── the same calls
//	(Services at random) └▶ userspace  ▶ node, pods, neighbours ◀┘   everywhere
//
// Every proxy has a world of its own, in network namespaces; the worlds are alike
// down to the last address. All callers call all frontends of all Services: whom they
// reached, how often it may be another, whom the endpoint saw, or else whether they
// were refused or heard nothing, must be the same in each world. What differs is a
// mistake of ours, or stands in the table of this package with its reason.
//
// A run prints its seed. make e2e runs a short one; POINTSMAN_SOAK=N has N times as
// many rounds, and POINTSMAN_SEED begins with that seed.
package beside
