// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestEveryLineIsChecked: each line of the contract in package sdk has checks, and no check is there twice.
func TestEveryLineIsChecked(t *testing.T) {
	data, err := os.ReadFile("../doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, contract, _ := strings.Cut(string(data), "\n# The contract\n")
	seen, lines := map[string]bool{}, map[string]bool{}
	for _, c := range checks() {
		if seen[c.name] {
			t.Errorf("%s is there twice", c.name)
		}
		seen[c.name] = true
		line, _, _ := strings.Cut(c.name, "/")
		lines[line] = true
	}
	for number := range 100 {
		if has := strings.Contains(contract, fmt.Sprintf("\n%d. ", number)); has != lines[fmt.Sprintf("C%02d", number)] {
			t.Errorf("line %d is in the contract: %t; it has checks: %t", number, has, !has)
		}
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
	const want = `relay 1.2 does not conform: of 8 checks 2 passed, 1 passed with the result of a declared limit, 2 failed, 3 could not be run here

fail     C03/full-twice
           expected  a
                     b
           seen      c
fail     C03/full-twice: after a Full
           expected  10.180.0.1:8080
           seen      drop
limit    C01/scenario/source-ranges: as declared: no-drop
not-run  C01/scenario/sctp: does not claim sctp
not-run  C02/affinity: does not claim affinity
not-run  C05/ten-thousand-services: there is no testbed`
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if r.Conforms() || (Report{}).Conforms() {
		t.Error("it conforms")
	}
	const untried = "relay 1.2 is not shown to conform, because a needed check could not be run: "
	r.Findings = slices.DeleteFunc(r.Findings, func(f Finding) bool { return f.Status == Fail })
	if got := r.Verdict(); r.Conforms() || !strings.HasPrefix(got, untried) {
		t.Errorf("where nothing failed: %s", got)
	}
}

func wrap(what string, err error) error { return fmt.Errorf("%s: %w", what, err) }

// TestEqualFailures: equal failures are told once, with the names of the first.
func TestEqualFailures(t *testing.T) {
	r := Report{Name: "relay", Version: "1"}
	for i := range 41 {
		f := Finding{Check: fmt.Sprintf("C%02d/check-%d", i%5, i), Status: Pass}
		f.conclude(errors.New("start the dataplane: it is tired"))
		r.Findings = append(r.Findings, f)
	}
	r.Findings = append(r.Findings, Finding{Check: "C04/other", Status: Fail, Reason: "another"})
	const want = "\n\nfail     C00/check-0, C01/check-1, C02/check-2, and 38 more: start the dataplane: it is tired\nfail     C04/other: another"
	if text := r.String(); !strings.HasSuffix(text, want) {
		t.Errorf("41 equal failures are told so:\n%s", text)
	}
}

// TestPartialReport, whatever was found.
func TestPartialReport(t *testing.T) {
	r := Report{Name: "relay", Version: "1", Partial: true, Findings: []Finding{{Check: "C00/x", Status: Pass}}}
	if r.Conforms() || !strings.Contains(r.Verdict(), "was tested against a part of the contract") {
		t.Errorf("%t: %s", r.Conforms(), r.Verdict())
	}
}

// TestWrongDescriptions: what a dataplane says of itself is held to what may be said.
func TestWrongDescriptions(t *testing.T) {
	good := func() sdk.Description {
		return sdk.Description{Name: "relay", Version: "1", Features: sdk.Features, Limits: sdk.Limits, Options: []byte(`{"type": "object"}`)}
	}
	for _, c := range []struct {
		breaks func(*sdk.Description)
		want   string
	}{
		{func(*sdk.Description) {}, ""},
		{func(d *sdk.Description) { d.Name = "Relay" }, "lower-case"},
		{func(d *sdk.Description) { d.Name = "relais" }, `as the binary's name says, pointsman-dataplane-relay`},
		{func(d *sdk.Description) { d.Version = "" }, "Description.Version"},
		{func(d *sdk.Description) { d.Limits = []sdk.Limit{"slow"} }, `seen      "slow"`},
		{func(d *sdk.Description) { d.Features = []sdk.Feature{"quic"} }, `seen      "quic"`},
		{func(d *sdk.Description) { d.Options = []byte("{") }, "JSON schema"},
	} {
		d := good()
		c.breaks(&d)
		s := bare(func(r *Recorder) sdk.Dataplane { r.Describe = d; return r })
		s.Path = "/usr/lib/pointsman-dataplane-relay.exe"
		if f := find(t, s, "C00/description"); (f.Status == Pass) != (c.want == "") || !strings.Contains(f.String(), c.want) {
			t.Errorf("%+v: %s, want %q", d, f, c.want)
		}
	}
}
