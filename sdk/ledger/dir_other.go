// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package ledger

// Dir is the directory of the ledgers of a node. Like the values in them, it outlives the
// processes but not a reboot.
const Dir = "/run/pointsman/ledger"
