// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bytes"
	_ "embed"
	"encoding/xml"
	"fmt"
	"html/template"
	"time"
)

// A suites is a report in JUnit's XML, which CI systems read: a suite for each line of the contract.
type suites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Name     string   `xml:"name,attr"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Skipped  int      `xml:"skipped,attr"`
	Time     string   `xml:"time,attr"` // in seconds
	Suites   []suite  `xml:"testsuite"`
}

type suite struct {
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Time     string     `xml:"time,attr"`
	Cases    []testCase `xml:"testcase"`
}

type testCase struct {
	Class   string `xml:"classname,attr"`
	Name    string `xml:"name,attr"`
	Time    string `xml:"time,attr"`
	Failure *why   `xml:"failure"`
	Skipped *why   `xml:"skipped"`
	Out     string `xml:"system-out,omitempty"` // how a declared limit showed
}

type why struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit returns the report as JUnit's XML. What was needed and could not be tried is a failure, for
// the report does not conform by it; what rightly was not tried is skipped.
func (r Report) JUnit() ([]byte, error) {
	all := suites{Name: fmt.Sprintf("%s %s", r.Name, r.Version)}
	var took time.Duration
	for _, l := range r.Lines() {
		s := suite{Name: fmt.Sprintf("C%02d %s", l.Number, l.Title), Tests: len(l.Findings)}
		var lineTook time.Duration
		for _, f := range l.Findings {
			lineTook += f.Took
			c := testCase{Class: fmt.Sprintf("%s.C%02d", r.Name, l.Number), Name: f.name(), Time: seconds(f.Took)}
			switch {
			case f.bad():
				c.Failure = &why{f.Reason, failure{f}.text()}
				s.Failures++
			case f.Status == NotRun:
				c.Skipped = &why{Message: f.Reason}
				s.Skipped++
			case f.Status == Limit:
				c.Out = f.Reason
			}
			s.Cases = append(s.Cases, c)
		}
		s.Time, took = seconds(lineTook), took+lineTook
		all.Tests, all.Failures, all.Skipped = all.Tests+s.Tests, all.Failures+s.Failures, all.Skipped+s.Skipped
		all.Suites = append(all.Suites, s)
	}
	all.Time = seconds(took)
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the report as JUnit's XML: %w", err)
	}
	return append(append([]byte(xml.Header), text...), '\n'), nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

//go:embed report.html
var layoutText string

var layout = template.Must(template.New("report").Funcs(template.FuncMap{
	"bad": Finding.bad, "where": Finding.where, "seconds": seconds, "name": Finding.name, "words": Line.words,
}).Parse(layoutText))

// HTML returns the report as one page that needs nothing else: for each line of the contract its
// checks, with scenario, packets, and what was expected and seen.
func (r Report) HTML() ([]byte, error) {
	var b bytes.Buffer
	if err := layout.Execute(&b, r); err != nil {
		return nil, fmt.Errorf("write the report as HTML: %w", err)
	}
	return b.Bytes(), nil
}
