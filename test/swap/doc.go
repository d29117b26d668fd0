// SPDX-License-Identifier: Apache-2.0

// Package swap tests changes of the mode under traffic on a real kernel, also when hosts and plugins are killed in the
// middle. Every test runs in network namespaces of its own and must leave nothing in them. Start reading at
// node_linux_test.go, and at swap_linux_test.go for the tests.
package swap
