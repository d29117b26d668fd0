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

// A Finding is the result of one check.
type Finding struct {
	Check  string        `json:"check"` // "C03/full-drops-stale": the contract's line, and a name
	Status Status        `json:"status"`
	Reason string        `json:"reason,omitempty"` // where and why, in words
	Want   string        `json:"want,omitempty"`   // what was expected
	Seen   string        `json:"seen,omitempty"`   // what was there instead
	Limits []sdk.Limit   `json:"limits,omitempty"` // with Limit: which
	Needed bool          `json:"needed"`           // if it is not run, the dataplane does not conform
	Took   time.Duration `json:"took"`
}

func (f Finding) String() string {
	s := fmt.Sprintf("%-8s %s", f.Status, f.Check)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	if f.Want != "" || f.Seen != "" {
		s += ": " + mismatch{f.Want, f.Seen}.Error()
	}
	return s
}

// name returns the check's name without its line: "full-drops-stale".
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
func (r Report) Count(s Status) int { return len(having(r.Findings, s)) }

// having returns the findings that have a status.
func having(findings []Finding, s Status) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Status != s })
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

// String returns the verdict, and below it each line of the contract with the checks that failed
// or were not tried. Checks with the same reason are named together.
//
//	0  session                                  ok (3 checks)
//	5  cost follows the change                  NOT KEPT (1 of 1 check failed)
//	     ten-thousand-services: one change among 10000 Services
//	       expected  at most half of the 210ms that all of them take
//	       seen      173ms
func (r Report) String() string {
	var b strings.Builder
	b.WriteString(r.Verdict() + "\n")
	for number, title := range titles {
		of := r.line(number)
		if len(of) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%2d  %-41s%s", number, title, summary(of))
		for _, same := range alike(having(of, Fail)) {
			b.WriteString("\n      " + strings.ReplaceAll(failureText(same), "\n", "\n        "))
		}
		for _, same := range alike(having(of, NotRun)) {
			b.WriteString("\n      not tried: " + same[0].Reason + " (" + names(same) + ")")
		}
	}
	return b.String()
}

// line returns the findings about one line of the contract.
func (r Report) line(number int) []Finding {
	prefix := fmt.Sprintf("C%02d/", number)
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return !strings.HasPrefix(f.Check, prefix) })
}

// summary returns the result of a line: the worst of its findings.
func summary(findings []Finding) string {
	n := len(findings)
	tried := n - len(having(findings, NotRun))
	count := plural(n, "check")
	if tried < n {
		count = fmt.Sprintf("%d of %s", tried, count)
	}
	failed, limited := having(findings, Fail), having(findings, Limit)
	switch {
	case len(failed) > 0:
		return fmt.Sprintf("NOT KEPT (%d of %s failed)", len(failed), plural(n, "check"))
	case tried == 0 || slices.ContainsFunc(findings, Finding.bad):
		return "could not be tried here (" + count + ")"
	case len(limited) > 0:
		var limits []sdk.Limit
		for _, f := range limited {
			limits = append(limits, f.Limits...)
		}
		slices.Sort(limits)
		return "limit declared: " + join(slices.Compact(limits)) + " (" + count + ")"
	}
	return "ok (" + count + ")"
}

// failureText returns the names of checks that failed alike, and why.
func failureText(same []Finding) string {
	text, f := names(same), same[0]
	if f.Reason != "" {
		text += ": " + f.Reason
	}
	if f.Want != "" || f.Seen != "" {
		text += "\nexpected  " + strings.ReplaceAll(f.Want, "\n", "\n          ") + "\nseen      " + strings.ReplaceAll(f.Seen, "\n", "\n          ")
	}
	return text
}

// alike groups findings that give the same reason, in order.
func alike(findings []Finding) (groups [][]Finding) {
	for _, f := range findings {
		i := slices.IndexFunc(groups, func(g []Finding) bool { return g[0].Reason == f.Reason && g[0].Want == f.Want && g[0].Seen == f.Seen })
		if i < 0 {
			groups = append(groups, []Finding{f})
		} else {
			groups[i] = append(groups[i], f)
		}
	}
	return groups
}

// names returns the names of the first few of these checks.
func names(findings []Finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, f.name())
	}
	return strings.Join(few(all), ", ")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
