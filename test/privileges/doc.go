// SPDX-License-Identifier: Apache-2.0

// Package privileges tests every dataplane against the contract, by packets, with exactly the capabilities that
// docs/security.md lists for it. Then it removes one capability, and checks that the dataplane needed it. Start reading
// at least_linux_test.go.
package privileges
