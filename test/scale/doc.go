// SPDX-License-Identifier: Apache-2.0

// Package scale measures Pointsman and kube-proxy on the same Services: real processes, one after the other, with a real
// kube-apiserver, in their own network namespace. It has only benchmarks, which may take hours. They must not assert
// upper limits of figures. Start reading at BenchmarkBesideKubeProxy.
package scale
