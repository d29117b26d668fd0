// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Status is what a check came to.
type Status string

// The statuses.
const (
	Pass   Status = "pass"
	Fail   Status = "fail"
	Limit  Status = "limit"   // as a limit says that the dataplane declares
	NotRun Status = "not-run" // Finding.Reason says why
)

// A Finding is what one check found.
type Finding struct {
	Check  string        `json:"check"` // "C03/full-drops-stale": the contract's line, and what of it
	Status Status        `json:"status"`
	Reason string        `json:"reason,omitempty"` // in a sentence; with Want and Seen in it, where they are set
	Want   string        `json:"want,omitempty"`   // what was expected
	Seen   string        `json:"seen,omitempty"`   // what was there instead
	Limits []sdk.Limit   `json:"limits,omitempty"` // with Limit: which
	Needed bool          `json:"needed"`           // not run, it disqualifies
	Took   time.Duration `json:"took"`

	Process  string       `json:"process,omitempty"`  // that was held to it: "pid 7 (/path)"; empty: the suite's own
	Scenario string       `json:"scenario,omitempty"` // whose packets were sent last
	Packets  []PacketSeen `json:"packets,omitempty"`  // of that scenario; the last one may have ended the check
}

// A PacketSeen is one packet of a scenario, and what became of it.
type PacketSeen struct {
	Line   int    `json:"line"`   // in the scenario's file
	Packet string `json:"packet"` // as it stands there: "10.180.0.9 > 172.30.0.41:80"
	Want   string `json:"want"`   // where it has to go, on the testbed
	Seen   string `json:"seen"`   // which answers there were
}

func (f Finding) String() string {
	s := fmt.Sprintf("%-8s %s", f.Status, f.Check)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	return s
}

// name returns the check's without its line: "full-drops-stale".
func (f Finding) name() string {
	_, name, _ := strings.Cut(f.Check, "/")
	return name
}

// bad reports whether f alone makes a report one that does not conform.
func (f Finding) bad() bool { return f.Status == Fail || f.Status == NotRun && f.Needed }

// A Report is what the suite found about one dataplane.
type Report struct {
	Name     string        `json:"name"`
	Version  string        `json:"version"`
	Subject  string        `json:"subject,omitempty"` // the file or the address that was held to the contract
	Partial  bool          `json:"partial,omitempty"` // not all checks were asked for
	Features []sdk.Feature `json:"features"`
	Limits   []sdk.Limit   `json:"limits"`
	Findings []Finding     `json:"findings"`
}

// Conforms reports whether nothing failed, and nothing that is needed was left
// out. A report of nothing, or of a part, does not conform.
func (r Report) Conforms() bool {
	return len(r.Findings) > 0 && !r.Partial && !slices.ContainsFunc(r.Findings, Finding.bad)
}

// Count returns how many findings have a status.
func (r Report) Count(s Status) int {
	return len(Line{Findings: r.Findings}.with(s))
}

// Verdict returns the report in one line.
func (r Report) Verdict() string {
	verdict := "conforms"
	switch {
	case r.Partial:
		verdict = "was held to a part of the contract, which does not show that it conforms"
	case r.Count(Fail) > 0:
		verdict = "does not conform"
	case !r.Conforms():
		verdict = "is not shown to conform, for something that is needed could not be tried"
	}
	if r.Subject != "" {
		verdict = "(" + r.Subject + ") " + verdict
	}
	return fmt.Sprintf("%s %s %s: of %d checks %d passed, %d came out as a declared limit says, %d failed, %d could not be tried here",
		r.Name, r.Version, verdict, len(r.Findings), r.Count(Pass), r.Count(Limit), r.Count(Fail), r.Count(NotRun))
}

// String returns the verdict, and below it a line for each line of the contract, with
// what was expected and seen where it is not kept.
func (r Report) String() string {
	var b strings.Builder
	b.WriteString(r.Verdict() + "\n")
	shown := make(map[string]bool)
	for _, l := range r.Lines() {
		b.WriteString("\n" + l.text(groups(r.Findings), shown))
	}
	return b.String()
}

// titles are the contract's lines, in the words that package sdk begins them with.
var titles = []string{
	"session",
	"verdict, in this order",
	"whose list, whose address",
	"idempotent",
	"one bad Service never blocks the others",
	"cost follows the change",
	"fail-static",
	"roles, from any to any",
	"one writer",
	"UDP flows",
	"a frontend has one owner",
	"calls never overlap, and end",
	"drift is repaired",
	"evolution",
}

// A Line is one line of the contract, with all that was found about it.
type Line struct {
	Number   int
	Title    string
	Findings []Finding
}

// Lines returns the contract's lines in order, those that were looked at.
func (r Report) Lines() []Line {
	var lines []Line
	for number, title := range titles {
		l := Line{Number: number, Title: title}
		prefix := fmt.Sprintf("C%02d/", number)
		for _, f := range r.Findings {
			if strings.HasPrefix(f.Check, prefix) {
				l.Findings = append(l.Findings, f)
			}
		}
		if len(l.Findings) > 0 {
			lines = append(lines, l)
		}
	}
	return lines
}

// with returns the line's findings that have a status.
func (l Line) with(s Status) []Finding {
	return slices.DeleteFunc(slices.Clone(l.Findings), func(f Finding) bool { return f.Status != s })
}

// Status returns the worst that was found: Fail, then NotRun where it disqualifies or
// nothing else was found, then Limit, then Pass.
func (l Line) Status() Status {
	switch {
	case len(l.with(Fail)) > 0:
		return Fail
	case slices.ContainsFunc(l.Findings, Finding.bad), len(l.with(NotRun)) == len(l.Findings):
		return NotRun
	case len(l.with(Limit)) > 0:
		return Limit
	}
	return Pass
}

// String returns the line, what it came to, and below it the reasons.
//
//	0  session                                  ok (3 checks)
//	5  cost follows the change                  NOT KEPT
//	     ten-thousand-services: one change of 10000 Services
//	       expected  at most a quarter of what all of them take, 210ms
//	       seen      73ms
//
// Failures that are equal are one, with how many checks it is and the names of the first.
func (l Line) String() string { return l.text(groups(l.Findings), make(map[string]bool)) }

// text is String, by the failures of a whole report, of which those that are shown already are left
// out.
func (l Line) text(all []failure, shown map[string]bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%2d  %-41s%s", l.Number, l.Title, l.words())
	for _, group := range all {
		if key := group.key(); !shown[key] && slices.ContainsFunc(l.with(Fail), func(f Finding) bool { return group.has(f) }) {
			shown[key] = true
			b.WriteString("\n      " + strings.ReplaceAll(group.text(), "\n", "\n        "))
		}
	}
	left := l.with(NotRun)
	if l.Status() == NotRun && len(reasons(left)) == 1 {
		return b.String() // which says why already
	}
	for _, why := range reasons(left) {
		var names []string
		for _, f := range left {
			if f.Reason == why {
				names = append(names, f.name())
			}
		}
		b.WriteString("\n      not tried: " + why + some(names))
	}
	return b.String()
}

// words returns what the line came to.
func (l Line) words() string {
	n := len(l.Findings)
	count := fmt.Sprintf("%d of %d checks", n-len(l.with(NotRun)), n)
	if len(l.with(NotRun)) == 0 {
		count = plural(n, "check")
	}
	switch l.Status() {
	case Fail:
		return fmt.Sprintf("NOT KEPT (%d of %s failed)", len(l.with(Fail)), plural(n, "check"))
	case NotRun:
		words := "could not be tried here"
		if why := reasons(l.with(NotRun)); len(why) == 1 {
			words += ": " + why[0]
		}
		if tried := n - len(l.with(NotRun)); tried > 0 {
			words += fmt.Sprintf(" (%d of %s ok without)", tried, plural(n, "check"))
		}
		return words
	case Limit:
		return "limit declared: " + join(l.limits()) + " (" + count + ")"
	}
	return "ok (" + count + ")"
}

// limits returns those that the line's checks came upon.
func (l Line) limits() []sdk.Limit {
	var all []sdk.Limit
	for _, f := range l.Findings {
		all = append(all, f.Limits...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// reasons returns those of findings, each once, in order.
func reasons(findings []Finding) []string {
	var all []string
	for _, f := range findings {
		if !slices.Contains(all, f.Reason) {
			all = append(all, f.Reason)
		}
	}
	return all
}

// some names the first few, and counts the rest.
func some(names []string) string {
	return " (" + strings.Join(few(names), ", ") + ")"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
