// SPDX-License-Identifier: Apache-2.0

// Package helm is a separate module that builds helm, by which tests render, check and install the chart. No plugin, host or
// test may import its dependencies.
package helm
