// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// A stamp is the same until somebody changes a table.
func TestKernelStamp(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	for _, backend := range []Backend{NFT, Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			tool, err := Open(t.Context(), sdk.IPv4, backend)
			if err != nil {
				t.Skip("needs the backend: ", err)
			}
			before := stamp(t, tool)
			if again := stamp(t, tool); again != before {
				t.Errorf("nothing was changed, and the stamp %v became %v", before, again)
			}
			for _, change := range []func(*Script){
				func(s *Script) { s.Declare("POINTSMAN-STAMP") },
				func(s *Script) { s.Remove("POINTSMAN-STAMP") },
			} {
				s := new(Script)
				s.Begin("mangle")
				change(s)
				s.Commit()
				if err := tool.Restore(t.Context(), s); err != nil {
					t.Fatal(err)
				}
				after := stamp(t, tool)
				if after == before {
					t.Errorf("the stamp stays %v when a chain comes or goes", before)
				}
				before = after
			}
		})
	}
}

func stamp(t *testing.T, tool Tool) Stamp {
	t.Helper()
	s, err := tool.Stamp("nat", "filter", "mangle")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
