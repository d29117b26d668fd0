// SPDX-License-Identifier: Apache-2.0

// Package scale holds Pointsman and kube-proxy side by side: real processes on one
// real kube-apiserver, in a network namespace of their own.
package scale
