// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

// A Commit is one change of nft's tables, as far as it took something away.
type Commit struct {
	Port    uint32 // whose: the process id of a program of ours, as Tool.Started had it
	Program string // whose, for people
	Gone    []Gone

	// Missed says that there was more than the kernel could tell.
	Missed bool
}

// Gone is a chain that was deleted or lost a rule, or a whole table.
type Gone struct {
	Family sdk.Family
	ID     ID // no chain: the whole table
}

// enough is how much of one commit is told. A process that empties more is known by that.
const enough = 1000

func (c *Commit) add(g Gone) {
	switch {
	case slices.Contains(c.Gone[max(0, len(c.Gone)-8):], g): // rules of a chain come one behind the other
	case len(c.Gone) < enough:
		c.Gone = append(c.Gone, g)
	default:
		c.Missed = true
	}
}
