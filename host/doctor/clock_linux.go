// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/host/admin"
)

// clock asks the kernel whether something keeps its clock right: certificates and leases depend on
// it (adjtimex(2): STA_UNSYNC).
func clock() []admin.Finding {
	const check = "clock"
	var t unix.Timex
	if _, err := unix.Adjtimex(&t); err != nil {
		return unknown(check, err)
	}
	if t.Status&unix.STA_UNSYNC != 0 {
		return []admin.Finding{{Check: check, Result: admin.Unknown, Why: "nothing tells the kernel that its clock is right; certificates and leases depend on that",
			Try: "timedatectl, or whatever keeps time on this node"}}
	}
	return ok(check, "it is kept right, to %d us", t.Maxerror)
}
