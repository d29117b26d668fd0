// SPDX-License-Identifier: Apache-2.0

// Package ipvs tests the whole product in its ipvs mode, as a node has it: binaries,
// a folder of manifests, packets. A kernel without IPVS runs it under ../uml.
package ipvs
