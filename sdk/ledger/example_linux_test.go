// SPDX-License-Identifier: Apache-2.0

package ledger_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/pointsman/pointsman/sdk/ledger"
)

// Two dataplanes need the same kernel parameter. Its previous value is restored when neither of
// them needs it any more.
func ExampleLedger_Take() {
	dir, err := os.MkdirTemp("", "ledger")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	parameter := filepath.Join(dir, "route_localnet") // stands for one below /proc/sys
	value := func() string {
		text, err := os.ReadFile(parameter)
		if err != nil {
			return err.Error()
		}
		return strings.TrimSpace(string(text))
	}
	if err := os.WriteFile(parameter, []byte("0\n"), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	l, err := ledger.Open(filepath.Join(dir, "ledger")) // a dataplane opens ledger.Dir
	if err != nil {
		fmt.Println(err)
		return
	}

	err = errors.Join(l.Take("iptables", parameter, "1"), l.Take("ipvs", parameter, "1"))
	fmt.Println("both hold it:", value(), err)
	_, err = l.Release("iptables")
	fmt.Println("one still does:", value(), err)
	_, err = l.Release("ipvs")
	fmt.Println("given back:", value(), err)
	// Output:
	// both hold it: 1 <nil>
	// one still does: 1 <nil>
	// given back: 0 <nil>
}
