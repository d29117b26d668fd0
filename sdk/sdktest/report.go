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
	Reason string        `json:"reason,omitempty"`
	Needed bool          `json:"needed"` // not run, it disqualifies
	Took   time.Duration `json:"took"`
}

func (f Finding) String() string {
	s := fmt.Sprintf("%-8s %s", f.Status, f.Check)
	if f.Reason != "" {
		s += ": " + f.Reason
	}
	return s
}

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
		if f.Status == Fail || f.Status == NotRun && f.Needed {
			return false
		}
	}
	return len(r.Findings) > 0
}

// Count is how many findings have a status.
func (r Report) Count(s Status) int {
	n := 0
	for _, f := range r.Findings {
		if f.Status == s {
			n++
		}
	}
	return n
}

// String is the verdict in one line, with the reasons for a bad one below.
func (r Report) String() string {
	verdict := "conforms"
	if !r.Conforms() {
		verdict = "does not conform"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s: %d passed, %d within declared limits, %d failed, %d not run",
		r.Name, r.Version, verdict, r.Count(Pass), r.Count(Limit), r.Count(Fail), r.Count(NotRun))
	for _, f := range r.Findings {
		if f.Status == Fail || f.Status == NotRun && f.Needed {
			b.WriteString("\n  " + f.String())
		}
	}
	return b.String()
}
