// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// Generation returns the same value until a process changes a table.
func TestKernelGeneration(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	for _, backend := range []Backend{NFT, Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			tool, err := Open(t.Context(), sdk.IPv4, backend)
			if err != nil {
				t.Skip("needs the backend: ", err)
			}
			before := generationOf(t, tool)
			if again := generationOf(t, tool); again != before {
				t.Errorf("nothing was changed, and the generation %v became %v", before, again)
			}
			id := ID{"mangle", "POINTSMAN-GENERATION"}
			for _, change := range []Block{{Table: id.Table, Whole: []Chain{{ID: id}}}, {Table: id.Table, Remove: []ID{id}}} {
				if err := tool.Restore(t.Context(), Plan{change}.Script(backend)); err != nil {
					t.Fatal(err)
				}
				after := generationOf(t, tool)
				if after == before {
					t.Errorf("the generation stays %v when a chain comes or goes", before)
				}
				before = after
			}
		})
	}
}

func generationOf(t *testing.T, tool Tool) Generation {
	t.Helper()
	s, err := tool.Generation("nat", "filter", "mangle")
	if err != nil {
		t.Fatal(err)
	}
	return s
}
