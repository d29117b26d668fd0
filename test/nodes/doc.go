// SPDX-License-Identifier: Apache-2.0

// Package nodes is a separate module that builds containerd, by which a test's kubelet runs the images. Debian's containerd
// is too old for this kubelet. No plugin, host or test may import its dependencies.
package nodes
