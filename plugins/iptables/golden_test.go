// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the difference before you keep it")

// TestGolden compares, for each scenario, the input of iptables-restore with a golden file, for a plugin that takes
// over empty tables. The files are for reading; other tests check that they are correct.
func TestGolden(t *testing.T) {
	for _, s := range sdktest.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			var text strings.Builder
			for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
				b := onFake(t, family, s.Node)
				b.SetRole(sdk.Active)
				b.updateJumps()
				script := b.write(t, piecesOf(family, s.Node, s.Services))
				if len(b.Desired()) > 0 {
					text.WriteString("# " + family.String() + "\n" + script.String())
				}
			}
			file := filepath.Join("testdata", s.Name+".rules")
			if *update {
				if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			golden, err := os.ReadFile(file)
			if err != nil {
				t.Fatalf("%v; go test -run Golden -update writes it", err)
			}
			if text.String() != string(golden) {
				t.Errorf("%s differs from the result, which is\n%s", file, text.String())
			}
		})
	}
}
