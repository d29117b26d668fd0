// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestTitles: the suite has the contract's lines, as package sdk writes them.
func TestTitles(t *testing.T) {
	data, err := os.ReadFile("../doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, contract, _ := strings.Cut(string(data), "\n# The contract\n")
	for number, title := range titles {
		begins := false
		for _, line := range strings.Split(contract, "\n") {
			word, rest, _ := strings.Cut(line, ". ")
			begins = begins || word == strconv.Itoa(number) && strings.HasPrefix(strings.ToLower(rest), strings.ToLower(strings.Fields(title)[0]))
		}
		if !begins {
			t.Errorf("line %d of the contract does not begin as %q does", number, title)
		}
	}
	if strings.Contains(contract, "\n"+strconv.Itoa(len(titles))+". ") {
		t.Error("the contract has more lines than the suite")
	}
}

// TestEveryLineIsChecked, each check once, and in order.
func TestEveryLineIsChecked(t *testing.T) {
	var r Report
	seen := map[string]bool{}
	for _, c := range checks() {
		if seen[c.name] {
			t.Errorf("%s is there twice", c.name)
		}
		seen[c.name] = true
		r.Findings = append(r.Findings, Finding{Check: c.name, Status: Pass})
	}
	lines, n := r.Lines(), 0
	for i, l := range lines {
		n += len(l.Findings)
		if l.Number != i {
			t.Errorf("line %d has no check", i)
		}
	}
	if len(lines) != len(titles) || n != len(seen) {
		t.Errorf("%d lines have %d of %d checks", len(lines), n, len(seen))
	}
}

// TestReportReads: a report with one of everything, as users see it.
func TestReportReads(t *testing.T) {
	r := Report{Name: "relay", Version: "1.2", Findings: []Finding{
		{Check: "C00/first-is-full", Status: Pass, Needed: true},
		{Check: "C01/scenario/sctp", Status: NotRun, Reason: "does not claim sctp"},
		{Check: "C01/scenario/source-ranges", Status: Limit, Reason: "as declared: no-drop", Limits: []sdk.Limit{sdk.LimitNoDrop}},
		{Check: "C02/scenario/node-port", Status: Pass},
		{Check: "C02/affinity", Status: NotRun, Reason: "does not claim affinity"},
		{Check: "C05/ten-thousand-services", Status: NotRun, Reason: "there is no testbed", Needed: true},
	}}
	for _, err := range []error{
		mismatch{"a\nb", "c"},
		wrap("after a Full", mismatch{"10.180.0.1:8080", "drop"}),
	} {
		f := Finding{Check: "C03/full-twice", Status: Pass, Needed: true}
		f.conclude(err)
		r.Findings = append(r.Findings, f)
	}
	const want = `relay 1.2 does not conform: of 8 checks 2 passed, 1 came out as a declared limit says, 2 failed, 3 could not be tried here

 0  session                                  ok (1 check)
 1  verdict, in this order                   limit declared: no-drop (1 of 2 checks)
      not tried: does not claim sctp (scenario/sctp)
 2  whose list, whose address                ok (1 of 2 checks)
      not tried: does not claim affinity (affinity)
 3  idempotent                               NOT KEPT (2 of 2 checks failed)
      full-twice
        expected  a
                  b
        seen      c
      full-twice: after a Full
        expected  10.180.0.1:8080
        seen      drop
 5  cost follows the change                  could not be tried here: there is no testbed`
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r.Conforms() || (Report{}).Conforms() {
		t.Error("it conforms")
	}
	const untried = "relay 1.2 is not shown to conform, for something that is needed could not be tried: "
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Status == Fail })
	if got := r.Verdict(); r.Conforms() || !strings.HasPrefix(got, untried) {
		t.Errorf("where nothing failed: %s", got)
	}
}

func wrap(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }
