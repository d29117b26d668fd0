// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// mixed is a report with one of everything, and text that would break out of a page.
func mixed() Report {
	r := Report{Name: "relay", Version: "<1.2>", Subject: "/bin/relay", Limits: []sdk.Limit{sdk.LimitNoDrop}, Findings: []Finding{
		{Check: "C00/first-is-full", Status: Pass, Needed: true, Took: time.Second},
		{Check: "C01/scenario/sctp", Status: NotRun, Reason: "does not claim sctp"},
		{Check: "C01/scenario/source-ranges", Status: Limit, Reason: "as declared: no-drop", Limits: []sdk.Limit{sdk.LimitNoDrop}},
		{Check: "C05/ten-thousand-services", Status: NotRun, Reason: "there is no testbed", Needed: true},
	}}
	f := Finding{Check: "C02/scenario/node-port", Status: Pass, Process: "pid 7 (/bin/relay)", Scenario: "node-port", Packets: []PacketSeen{
		{12, "198.18.0.7 > node:30080", "10.180.0.1:8080", "<script>drop</script>"},
	}}
	f.conclude(fmt.Errorf("scenario node-port, line 12: %w", mismatch{"10.180.0.1:8080", "drop & reject"}))
	r.Findings = append(r.Findings, f)
	return r
}

func TestJUnit(t *testing.T) {
	text, err := mixed().JUnit()
	if err != nil {
		t.Fatal(err)
	}
	var got suites
	if err := xml.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if got.Tests != 5 || got.Failures != 2 || got.Skipped != 1 || got.Time != "1.000" || len(got.Suites) != 4 {
		t.Errorf("%d tests, %d failures, %d skipped, %s s in %d suites:\n%s", got.Tests, got.Failures, got.Skipped, got.Time, len(got.Suites), text)
	}
	failed := got.Suites[2].Cases[0]
	if failed.Class != "relay.C02" || failed.Name != "scenario/node-port" || failed.Failure == nil || !strings.Contains(failed.Failure.Text, "seen      drop & reject") {
		t.Errorf("what failed is told as %+v", failed)
	}
}

// TestHTML: the page is well-formed, needs nothing from elsewhere, and has line, scenario, packets, and
// what was expected and seen.
func TestHTML(t *testing.T) {
	html, err := mixed().HTML()
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(string(html)))
	var text strings.Builder
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, html)
		}
		if start, ok := token.(xml.StartElement); ok && regexp.MustCompile("^(script|link|img|iframe)$").MatchString(start.Name.Local) {
			t.Errorf("the page has a <%s>", start.Name.Local)
		}
		if data, ok := token.(xml.CharData); ok {
			text.Write(data)
			text.WriteString("\n")
		}
	}
	for _, part := range []string{
		"relay <1.2> (/bin/relay) does not conform", "2. whose list, whose address", "scenario node-port, line 12", "198.18.0.7 > node:30080",
		"10.180.0.1:8080", "drop & reject", "<script>drop</script>", "process pid 7 (/bin/relay)", "limit declared: no-drop", "there is no testbed",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("the page does not say %q:\n%s", part, html)
		}
	}
	if strings.Contains(string(html), "://") || strings.Contains(string(html), "url(") {
		t.Error("the page leads elsewhere")
	}
}

// TestEqualFailuresAreOne: they are told once in a report, with their number and the first three.
func TestEqualFailuresAreOne(t *testing.T) {
	r := Report{Name: "relay", Version: "1"}
	for i := range 41 {
		f := Finding{Check: fmt.Sprintf("C%02d/check-%d", i%5, i), Status: Pass}
		f.conclude(errors.New("start the dataplane: it is tired"))
		r.Findings = append(r.Findings, f)
	}
	r.Findings = append(r.Findings, Finding{Check: "C04/other", Status: Fail, Reason: "another"})
	text := r.String()
	if strings.Count(text, "tired") != 1 || !strings.Contains(text, "41 checks (C00/check-0, C01/check-1, C02/check-2, and 38 more): start the dataplane") {
		t.Errorf("41 equal failures are told so:\n%s", text)
	}
	if strings.Count(text, "NOT KEPT") != 5 || !strings.Contains(text, "other: another") {
		t.Errorf("what else there is:\n%s", text)
	}
}

// TestPartNeverConforms, whatever was found.
func TestPartNeverConforms(t *testing.T) {
	r := Report{Name: "relay", Version: "1", Partial: true, Findings: []Finding{{Check: "C00/x", Status: Pass}}}
	if r.Conforms() || !strings.Contains(r.Verdict(), "was held to a part of the contract") {
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
		{func(d *sdk.Description) { d.Name = "relais" }, `"relay", as the binary's name says`},
		{func(d *sdk.Description) { d.Version = "" }, "Description.Version"},
		{func(d *sdk.Description) { d.Limits = []sdk.Limit{"slow"} }, `seen "slow"`},
		{func(d *sdk.Description) { d.Features = []sdk.Feature{"quic"} }, `seen "quic"`},
		{func(d *sdk.Description) { d.Options = []byte("{") }, "JSON schema"},
	} {
		d := good()
		c.breaks(&d)
		err := wrongIn(d, NameOf("/usr/lib/pointsman-dataplane-relay.exe"))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", d, err, c.want)
		}
	}
}

// TestUnreleasedLock: in one process, a life that has not let go of the writer's lock keeps the next
// one from serving. The check says so, and what was planned.
func TestUnreleasedLock(t *testing.T) {
	s := lasts(func(*lasting) {})
	s.Stop = nil // the mistake
	if f := find(t, s, "C03/full-twice"); f.Status != Pass {
		t.Fatalf("the first: %s", f)
	}
	f := find(t, s, "C03/full-twice")
	if f.Status != Fail || !strings.Contains(f.Seen, "only planned") || !strings.Contains(f.Seen, "held by pid 7 (lasting)") || !strings.Contains(f.Seen, "Result.Steps: set ns1/") {
		t.Errorf("the second: %s", f)
	}
}
