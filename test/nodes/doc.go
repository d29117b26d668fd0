// SPDX-License-Identifier: Apache-2.0

// Package nodes is a module of its own for containerd, by which a test's kubelet runs the images: what
// it brings in is nothing that a plugin, a host or a test imports. Debian's is too old for the kubelet.
package nodes
