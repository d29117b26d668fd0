// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/doctor"
)

// TestColouredTables: columns are the same with and without colours, and cells that show a result have its colour.
func TestColouredTables(t *testing.T) {
	print := func(colours bool) string {
		var out bytes.Buffer
		w := newTable(&out)
		w.hasColours = colours
		writeDiagnosis(w, doctor.Diagnosis{Result: doctor.Fail, Checks: []doctor.Finding{
			{Check: "host", Result: doctor.OK, Why: "r"}, {Check: "forwarding", Result: doctor.Warn, Why: "r", Try: "sysctl"},
			{Check: "clock", Result: doctor.Unknown, Why: "r"}, {Check: "plugin", Result: doctor.Fail, Why: "r"},
		}})
		_ = w.Flush() // to memory
		return out.String()
	}
	plain, coloured := print(false), print(true)
	if stripped := regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(coloured, ""); stripped != plain {
		t.Errorf("with colours:\n%swithout colours:\n%s", stripped, plain)
	}
	for _, part := range []string{"\x1b[32mok\x1b[39m", "\x1b[33mwarn\x1b[39m", "\x1b[39munknown\x1b[39m", "\x1b[31mfail\x1b[39m"} {
		if !strings.Contains(coloured, part) {
			t.Errorf("no %q in %q", part, coloured)
		}
	}
}
