// SPDX-License-Identifier: Apache-2.0

// Package test holds what is true of the whole system: which room may import
// which, and what the host and its plugins do together.
package test
