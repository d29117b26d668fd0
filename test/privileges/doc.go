// SPDX-License-Identifier: Apache-2.0

// Package privileges runs every dataplane against the contract, with real packets, with exactly the capabilities that
// docs/security.md lists for it. Then it removes one of them, and checks that it was needed. Start reading at
// least_linux_test.go.
package privileges
