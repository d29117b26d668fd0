// SPDX-License-Identifier: Apache-2.0

//go:build !windows

package ledger

// Dir is where dataplanes on a node keep their ledger: a directory that outlives
// their processes but not a reboot, as the values do.
const Dir = "/run/pointsman/ledger"
