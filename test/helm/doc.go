// SPDX-License-Identifier: Apache-2.0

// Package helm is a module of its own for helm, by which tests render, check and install the chart:
// what it brings in is nothing that a plugin, a host or a test imports.
package helm
