// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/doctor"
)

// TestColouredTables compares tables with and without colours: the columns are the same, and the cells that show a
// result have its colour.
func TestColouredTables(t *testing.T) {
	for name, c := range map[string]struct {
		table func(io.Writer)
		want  string // with colours
	}{
		"doctor": {func(w io.Writer) {
			writeDiagnosis(w, doctor.Diagnosis{Result: doctor.Fail, Checks: []doctor.Finding{
				{Check: "host", Result: doctor.OK, Why: "r"}, {Check: "forwarding", Result: doctor.Warn, Why: "r", Try: "sysctl"},
				{Check: "clock", Result: doctor.Unknown, Why: "r"}, {Check: "plugin", Result: doctor.Fail, Why: "r"},
			}})
		}, "\x1b[32mok\x1b[39m|\x1b[33mwarn\x1b[39m|\x1b[39munknown\x1b[39m|\x1b[31mfail\x1b[39m"},
		"status": {func(w io.Writer) {
			writeStatus(w, admin.Status{
				Warnings: []admin.Warning{{Code: "W004", Text: "x"}},
				Unserved: []admin.Problem{{Service: "a", Reason: "refused", Why: "y"}},
			})
		}, "\x1b[31mrefused\x1b[39m|\x1b[33mW004\x1b[39m"},
		"all is well": {func(w io.Writer) { writeStatus(w, admin.Status{Healthy: true}) }, "\x1b[32mis well\x1b[39m"},
	} {
		print := func(colours bool) string {
			var out bytes.Buffer
			w := newTable(&out)
			w.hasColours = colours
			c.table(w)
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		plain, coloured := print(false), print(true)
		if stripped := regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(coloured, ""); stripped != plain {
			t.Errorf("%s: with colours:\n%swithout colours:\n%s", name, stripped, plain)
		}
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(coloured, part) {
				t.Errorf("%s: no %q in %q", name, part, coloured)
			}
		}
	}
}
