// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"fmt"
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
	Features []sdk.Feature `json:"features"`
	Limits   []sdk.Limit   `json:"limits"`
	Findings []Finding     `json:"findings"`
}

// Conforms reports whether nothing failed, and nothing that is needed was left
// out. A report of nothing does not conform.
func (r Report) Conforms() bool {
	for _, f := range r.Findings {
		if f.bad() {
			return false
		}
	}
	return len(r.Findings) > 0
}

// Count returns how many findings have a status.
func (r Report) Count(s Status) int {
	n := 0
	for _, f := range r.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}

// Verdict returns the report in one line.
func (r Report) Verdict() string {
	verdict := "conforms"
	if !r.Conforms() {
		verdict = "does not conform"
	}
	return fmt.Sprintf("%s %s %s: of %d checks %d passed, %d came out as a declared limit says, %d failed, %d could not be tried here",
		r.Name, r.Version, verdict, len(r.Findings), r.Count(Pass), r.Count(Limit), r.Count(Fail), r.Count(NotRun))
}

// String returns the verdict, and below it a line for each line of the contract, with
// what was expected and seen where it is not kept.
func (r Report) String() string {
	var b strings.Builder
	b.WriteString(r.Verdict() + "\n")
	for _, l := range r.Lines() {
		b.WriteString("\n" + l.String())
	}
	return b.String()
}
