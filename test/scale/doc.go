// SPDX-License-Identifier: Apache-2.0

// Package scale measures Pointsman and kube-proxy side by side: real processes on one real kube-apiserver, in a network
// namespace of their own. It only has benchmarks, which may take hours, and asserts no figure. Start reading at
// beside_linux_test.go.
package scale
