// SPDX-License-Identifier: Apache-2.0

// Package ipvs tests the whole product in its ipvs mode on a node: binaries, a folder of manifests, packets. On a
// kernel without IPVS test/uml runs it in a guest; it must not load modules into the machine's kernel. Start reading at
// whole_linux_test.go.
package ipvs
