// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

var codes = regexp.MustCompile(`\x1b\[\d+m`)

// TestColouredTables are those without colours, but for the codes: the columns stay aligned.
func TestColouredTables(t *testing.T) {
	event := admin.Event{Time: time.Unix(0, 0), Reason: "FrontendTaken", Message: "m"}
	warning := event
	warning.Warning = true
	for name, c := range map[string]struct {
		table func(io.Writer)
		want  string // in colours
	}{
		"services": {func(w io.Writer) {
			writeServices(w, admin.ServiceList{Items: []admin.Service{
				{Namespace: "shop", Name: "web", Ports: []admin.Port{{Network: "tcp4", State: "served"}, {Network: "tcp6", State: "no endpoints"}}},
				{Namespace: "shop", Name: "none"},
				{Namespace: "shop", Name: "db", Ports: []admin.Port{{Network: "tcp4", State: "conflict"}}},
			}})
		}, "\x1b[32mserved\x1b[39m|\x1b[33mno endpoints\x1b[39m|\x1b[31mnot served\x1b[39m|\x1b[31mconflict\x1b[39m"},
		"doctor": {func(w io.Writer) {
			writeDiagnosis(w, admin.Diagnosis{Result: admin.Fail, Checks: []admin.Finding{
				{Check: "host", Result: admin.OK, Why: "r"}, {Check: "forwarding", Result: admin.Warn, Why: "r", Try: "sysctl"},
				{Check: "clock", Result: admin.Unknown, Why: "r"}, {Check: "plugin", Result: admin.Fail, Why: "r"},
			}})
		}, "\x1b[32mok\x1b[39m|\x1b[33mwarn\x1b[39m|\x1b[39munknown\x1b[39m|\x1b[31mfail\x1b[39m"},
		"events": {func(w io.Writer) { writeEvents(w, []admin.Event{event, warning}) }, "\x1b[39mnormal\x1b[39m|\x1b[33mwarning\x1b[39m"},
		"status": {func(w io.Writer) {
			writeStatus(w, admin.Status{
				Dataplane: admin.Plugin{State: "quarantined", Why: "y"}, Warnings: []admin.Warning{{Code: "W004", Text: "x"}},
				Unserved: []admin.Problem{{Service: "a", Reason: "refused", Why: "y"}},
			})
		}, "\x1b[31mquarantined\x1b[39m|\x1b[31mrefused\x1b[39m|\x1b[33mW004\x1b[39m"},
		"all is well": {func(w io.Writer) { writeStatus(w, admin.Status{Healthy: true}) }, "\x1b[32mis well\x1b[39m"},
		"explain": {func(w io.Writer) { writeExplanation(w, admin.Explanation{Verdict: "drop", State: "withheld"}) },
			"\x1b[31mdrop\x1b[39m|\x1b[31mwithheld\x1b[39m"},
		"plugins": {func(w io.Writer) { writePlugin(w, admin.Plugin{State: "serving"}) }, "\x1b[32mserving\x1b[39m"},
	} {
		print := func(colours bool) string {
			var out bytes.Buffer
			w := newTable(&out, colours)
			c.table(w)
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			return out.String()
		}
		usual, coloured := print(false), print(true)
		if stripped := codes.ReplaceAllString(coloured, ""); stripped != usual {
			t.Errorf("%s: with colours it is\n%swithout it is\n%s", name, stripped, usual)
		}
		for part := range strings.SplitSeq(c.want, "|") {
			if !strings.Contains(coloured, part) {
				t.Errorf("%s: no %q in %q", name, part, coloured)
			}
		}
	}
}
