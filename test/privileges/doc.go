// SPDX-License-Identifier: Apache-2.0

// Package privileges runs every dataplane with exactly the capabilities that
// docs/security.md says it needs, and holds it to the contract, with real packets.
// Then it takes one of them away, and sees that it was needed.
package privileges
