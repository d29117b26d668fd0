// SPDX-License-Identifier: Apache-2.0

// Package duty is what every dataplane with rules in the kernel owes the contract,
// whatever its rules are: in each mode one process writes (Claim), what it does can be
// asked for beside that (Status), what it takes of the node's parameters it takes by the
// ledger (Setting), and of UDP it forgets only flows of Services that changed (UDP).
package duty
