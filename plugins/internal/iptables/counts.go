// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// Counts are what one of legacy's tables holds, by number. To take it from the kernel
// costs a fraction of having a program print the table, so it tells whether there is
// reason to.
type Counts struct {
	Rules map[string]int // in each chain that is not built in
	Leads map[Lead]int   // from one of the kernel's own to one of those

	others int // rules in the kernel's own chains
}

// Lost says what of ours one of legacy's tables may have lost since it had the size was;
// empty: nothing. One that cannot be counted may have lost everything, and one with as many
// rules in other bytes has had one replaced.
func Lost(family sdk.Family, table string, was, now Size, wanted map[ID]string, jumps []Jump) string {
	if now.Rules == was.Rules {
		return fmt.Sprintf("a rule was replaced in the table %s", table)
	}
	counts, err := CountTable(family, table)
	if err != nil {
		return err.Error()
	}
	return counts.Lacks(table, wanted, jumps)
}

// A Lead is a way from chain to chain.
type Lead struct{ From, To string }

// Lacks says what is not in the table as it should be: chains with as many rules as
// theirs in wanted has lines, and the jumps. Empty: nothing. That a rule was replaced by
// another it cannot tell.
func (t Counts) Lacks(table string, wanted map[ID]string, jumps []Jump) string {
	leads := make(map[Lead]int)
	for _, j := range jumps {
		if j.At.Table == table {
			leads[Lead{j.At.Chain, j.Rule.Target()}]++
		}
	}
	for lead, n := range leads {
		if t.Leads[lead] < n {
			return fmt.Sprintf("a jump was deleted from %s", ID{table, lead.From})
		}
	}
	for id, text := range wanted {
		if id.Table != table {
			continue
		}
		has, there := t.Rules[id.Chain]
		switch should := strings.Count(text, "\n"); {
		case !there:
			return fmt.Sprintf("%s was deleted", id)
		case has != should:
			return fmt.Sprintf("%s has %d rules, not %d", id, has, should)
		}
	}
	return ""
}
