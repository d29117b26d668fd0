// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// TestMissingFeature checks that the error says in words when the kernel has no nf_tables at all, and that no fault
// except that of the last operation is ignored.
func TestMissingFeature(t *testing.T) {
	last := nftnl.Fault{First: 9, Last: 9, Errno: syscall.ENOENT}
	for _, c := range []struct {
		faults nftnl.Faults
		want   string
	}{
		{nftnl.Faults{last}, "<nil>"},
		{nftnl.Faults{{First: 0, Last: 0, Errno: syscall.EOPNOTSUPP}, {First: 1, Last: 1, Errno: syscall.EOPNOTSUPP}, last}, "the kernel has no nf_tables"},
		{nftnl.Faults{{First: 0, Last: 0, Errno: syscall.EPERM}}, "the kernel forbids this process to use nf_tables: it needs the capability NET_ADMIN"},
		{nftnl.Faults{{First: 4, Last: 4, Errno: syscall.EOPNOTSUPP}, last}, "the kernel lacks a part of nf_tables: nftables: operation 4: operation not supported (and 1 more)"},
		{nftnl.Faults{last, {First: 4, Last: 4, Errno: syscall.ENOENT}}, "the kernel lacks a part of nf_tables: nftables: operation 9: no such file or directory (and 1 more)"},
	} {
		if got := fmt.Sprint(missingFeature(c.faults, 9)); got != c.want {
			t.Errorf("%v: got %q, want %q", c.faults, got, c.want)
		}
	}
}
