// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

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
func (l Line) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%2d  %-41s%s", l.Number, l.Title, l.words())
	for _, f := range l.with(Fail) {
		b.WriteString("\n      " + strings.ReplaceAll(f.shown(), "\n", "\n        "))
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

// shown returns a failure, with what was expected and seen below it.
func (f Finding) shown() string {
	if f.Want == "" && f.Seen == "" {
		return f.name() + ": " + f.Reason
	}
	m := mismatch{want: f.Want, seen: f.Seen}
	where := strings.TrimSuffix(strings.TrimSuffix(f.Reason, m.Error()), ": ")
	if where != "" {
		where = ": " + where
	}
	indent := func(s string) string { return strings.ReplaceAll(s, "\n", "\n          ") }
	return f.name() + where + "\nexpected  " + indent(f.Want) + "\nseen      " + indent(f.Seen)
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
	const most = 3
	if len(names) > most {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("and %d more", len(names)-most))
	}
	return " (" + strings.Join(names, ", ") + ")"
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
