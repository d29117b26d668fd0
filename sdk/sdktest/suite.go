// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// Conform tests s against the contract, line by line. Each check is a subtest.
func Conform(t *testing.T, s Subject) {
	t.Helper()
	_, s, err := describe(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range s.checks() {
		t.Run(c.name, func(t *testing.T) {
			switch f := c.find(t.Context(), s); {
			case f.bad():
				t.Error(f)
			case f.Status == NotRun:
				t.Skip(f.Reason)
			case f.Status == Limit:
				t.Log(f)
			}
		})
	}
}

// Check tests s against the contract and returns a report. It calls tell, if not nil, with each
// finding as its check ends. The error says why the suite could not begin, or was cut short.
func Check(ctx context.Context, s Subject, tell func(Finding)) (Report, error) {
	d, s, err := describe(ctx, s)
	if err != nil {
		return Report{}, fmt.Errorf("begin conformance: %w", err)
	}
	r := Report{Name: d.Name, Version: d.Version, Subject: s.Path, Features: d.Features, Limits: d.Limits, Partial: s.Only != nil}
	for _, c := range s.checks() {
		f := c.find(ctx, s)
		if err := ctx.Err(); err != nil {
			return r, fmt.Errorf("conformance was cut short: %w", err)
		}
		r.Findings = append(r.Findings, f)
		if tell != nil {
			tell(f)
		}
	}
	if len(r.Findings) == 0 {
		return r, errors.New("no check has a name that matches")
	}
	return r, nil
}

// describe returns the Description on this node, and s with a default testbed if one is
// suitable.
func describe(ctx context.Context, s Subject) (sdk.Description, Subject, error) {
	t, err := begin(ctx, s)
	if err != nil {
		return sdk.Description{}, s, err
	}
	defer t.end()
	if s.Testbed == nil && limited(t.description, sdk.LimitOwnAddressesOnly) {
		s.Testbed = Loopback()
	}
	return t.description, s, nil
}

// checks returns the selected checks.
func (s Subject) checks() []check {
	return slices.DeleteFunc(checks(), func(c check) bool { return s.Only != nil && !s.Only(c.name) })
}

// A check tests one line of the contract, or a part of one.
type check struct {
	name   string
	needed bool // the dataplane conforms only if this check is run
	run    func(*trial)
}

// The error of a check is a failure, unless it is of one of the first three types.
type (
	notRun   struct{ why string }
	excused  struct{ why string } // not run, for a valid reason
	byLimits struct{ limits []sdk.Limit }
	mismatch struct{ want, seen string } // a failure with an expected and a seen value
)

func (e notRun) Error() string   { return e.why }
func (e excused) Error() string  { return e.why }
func (e byLimits) Error() string { return "as declared: " + join(e.limits) }
func (e mismatch) Error() string { return "expected " + e.want + "; seen " + e.seen }

var noPackets = notRun{"no packets can be sent to it here (a test can give a Testbed)"}

// by returns the error for a result that a declared limit explains.
func by(l sdk.Limit) error { return byLimits{[]sdk.Limit{l}} }

// checkTime limits one check, so that a hung dataplane does not hang the suite.
const checkTime = 3 * time.Minute

// find runs the check in a new life.
func (c check) find(ctx context.Context, s Subject) Finding {
	f := Finding{Check: c.name, Status: Pass, Needed: c.needed}
	if s.Testbed == nil && strings.Contains(c.name, "/scenario/") {
		f.conclude(noPackets) // no life is needed for that result
		return f
	}
	done, err := s.exclusive(ctx)
	if err == nil {
		defer done()
		err = c.try(ctx, s)
	}
	f.conclude(err)
	return f
}

// try runs the check on a separate goroutine, which a failing step ends.
func (c check) try(ctx context.Context, s Subject) error {
	t, err := begin(ctx, s)
	if err != nil {
		return err
	}
	defer t.end()
	done := make(chan struct{})
	go func() { // ends with the check
		defer close(done)
		c.run(t)
	}()
	<-done
	return *t.failure
}

// conclude sets the result from the error of a check.
func (f *Finding) conclude(err error) {
	if err == nil {
		return
	}
	f.Status, f.Reason = Fail, err.Error()
	if limits, ok := errors.AsType[byLimits](err); ok {
		f.Status, f.Reason, f.Limits = Limit, limits.Error(), limits.limits
	} else if left, ok := errors.AsType[notRun](err); ok {
		f.Status, f.Reason = NotRun, left.why
	} else if rightly, ok := errors.AsType[excused](err); ok {
		f.Status, f.Reason, f.Needed = NotRun, rightly.why, false
	} else if differs, ok := errors.AsType[mismatch](err); ok {
		f.Want, f.Seen = differs.want, differs.seen
		f.Reason = strings.TrimSuffix(strings.TrimSuffix(f.Reason, differs.Error()), ": ")
	}
}

// checks returns the checks for all lines of the contract, in order.
func checks() []check {
	return slices.Concat([]check{
		{"C00/description", true, describesItself},
		{"C00/same-setup-twice", true, sameSetupTwice},
		{"C00/first-is-full", true, firstIsFull},
		{"C00/new-session-starts-over", true, newSessionStartsOver},
		{"C00/older-session-is-fenced", false, olderIsFenced},
		{"C01/packets-are-sent", true, packetsAreSent},
	}, scenarioChecks("C01/scenario/", false), scenarioChecks("C02/scenario/", true), []check{
		{"C02/affinity", false, affinity(1)},
		{"C02/affinity-over-frontends", false, affinity(2)},
		{"C03/gap-resyncs", true, gapResyncs},
		{"C03/full-twice", true, fullTwice},
		{"C03/full-drops-stale", true, fullDropsStale},
		{"C03/delta-twice", true, deltaTwice},
		{"C03/random-walk", true, randomWalk},
		{"C03/established-tcp-stays", false, establishedStays},
		{"C04/bad-keeps-what-served", true, badKeepsWhatServed},
		{"C04/address-not-ours", true, addressNotOurs},
		{"C05/ten-thousand-services", true, tenThousandServices},
		{"C06/restart", true, restartAdopts},
		{"C06/foreign-stays", false, foreignStays},
		{"C06/dry-run-only-names", true, dryRunOnlyNames},
		{"C06/cleanup-leaves-nothing", true, cleanupLeavesNothing},
		{"C06/cleanup-of-nothing", true, cleanupOfNothing},
		{"C07/any-role-to-any", true, anyRoleToAny},
		{"C07/only-active-catches", true, onlyActiveCatches},
		{"C07/standby-inspects", true, inspectsInStandby},
		{"C07/swap-under-load", true, swapsUnderLoad},
		{"C07/draining-keeps-established", false, drainingKeeps},
		{"C07/every-role-keeps-established", false, everyRoleKeeps("cluster-ip")},
		{"C07/every-role-keeps-established-by-node-port", false, everyRoleKeeps("node-port")},
		{"C07/yielded-catches-up", true, yieldedCatchesUp},
		{"C08/second-takes-over-from-yielded", false, secondTakesOver(func(first *trial) { first.role(sdk.Yielded) })},
		{"C08/second-takes-over-from-dead", false, secondTakesOver((*trial).stop)},
		{"C09/udp-leaves-the-gone", false, udpLeavesTheGone},
		{"C09/udp-stays-with-the-others", false, udpStaysWithOthers},
		{"C09/udp-stays-with-who-still-serves", false, udpStaysWithServing},
		{"C09/udp-leaves-when-nobody-serves", false, udpLeavesUnserved(false, false)},
		{"C09/udp-leaves-the-deleted", false, udpLeavesUnserved(true, false)},
		{"C09/udp-leaves-what-went-during-a-restart", false, udpLeavesUnserved(true, true)},
		{"C10/frontend-changes-owner", true, frontendChangesOwner},
		{"C11/context-ends-in-sync", true, contextEndsInSync},
		{"C11/inspect-and-report-beside", true, besideSync},
		{"C11/no-children-left", false, noChildrenLeft},
		{"C12/drift-is-repaired", false, driftIsRepaired},
		{"C13/unknown-protocol", true, isolates(func(s *sdk.Service) { s.Name.Protocol = unknown })},
		{"C13/unknown-family", true, isolates(func(s *sdk.Service) { s.Name.Family = unknown })},
		{"C13/unknown-kind", true, isolates(func(s *sdk.Service) { s.Frontends[0].Kind = unknown })},
		{"C13/unknown-policy", true, isolates(func(s *sdk.Service) { s.Frontends[0].Policy = unknown })},
	})
}

// A Status is the result of a check.
type Status string

// Values of Status.
const (
	Pass   Status = "pass"
	Fail   Status = "fail"
	Limit  Status = "limit"   // passed with the result of a limit that the dataplane declares
	NotRun Status = "not-run" // see Finding.Reason
)

// line returns text behind the status. Further lines of text are indented.
func (s Status) line(text string) string {
	return fmt.Sprintf("%-8s %s", s, strings.ReplaceAll(text, "\n", "\n           "))
}

// A Finding is the result of one check.
type Finding struct {
	Check  string      `json:"check"` // contract line and name: "C03/full-drops-stale"
	Status Status      `json:"status"`
	Reason string      `json:"reason,omitempty"` // where and why, as text
	Want   string      `json:"want,omitempty"`   // what was expected
	Seen   string      `json:"seen,omitempty"`   // what was seen instead
	Limits []sdk.Limit `json:"limits,omitempty"` // for Limit: the limits
	Needed bool        `json:"needed"`           // the dataplane conforms only if this check is run
}

func (f Finding) String() string {
	return f.Status.line(f.Check + f.why())
}

// bad reports whether f alone means that the dataplane does not conform.
func (f Finding) bad() bool { return f.Status == Fail || f.Status == NotRun && f.Needed }

// A Report is the result of the suite for one dataplane.
type Report struct {
	Name     string        `json:"name"`
	Version  string        `json:"version"`
	Subject  string        `json:"subject,omitempty"` // the file that was tested
	Partial  bool          `json:"partial,omitempty"` // not all checks were selected
	Features []sdk.Feature `json:"features"`
	Limits   []sdk.Limit   `json:"limits"`
	Findings []Finding     `json:"findings"`
}

// Conforms reports whether nothing failed and no needed check was left out. An empty or partial
// report does not conform.
func (r Report) Conforms() bool {
	return len(r.Findings) > 0 && !r.Partial && !slices.ContainsFunc(r.Findings, Finding.bad)
}

// Count returns the number of findings with a status.
func (r Report) Count(s Status) int { return len(having(r.Findings, s)) }

// having returns the findings with a status.
func having(findings []Finding, s Status) []Finding {
	return slices.DeleteFunc(slices.Clone(findings), func(f Finding) bool { return f.Status != s })
}

// Verdict returns the result in one line.
func (r Report) Verdict() string {
	verdict := "conforms"
	switch {
	case r.Partial:
		verdict = "was tested against a part of the contract, which does not show that it conforms"
	case r.Count(Fail) > 0:
		verdict = "does not conform"
	case !r.Conforms():
		verdict = "is not shown to conform, because a needed check could not be run"
	}
	if r.Subject != "" {
		verdict = "(" + r.Subject + ") " + verdict
	}
	return fmt.Sprintf("%s %s %s: of %d checks %d passed, %d passed with the result of a declared limit, %d failed, %d could not be run here",
		r.Name, r.Version, verdict, len(r.Findings), r.Count(Pass), r.Count(Limit), r.Count(Fail), r.Count(NotRun))
}

// String returns the verdict, and below it the checks that did not simply pass. Checks with the
// same reason are named together.
//
//	fail     C05/ten-thousand-services: one change among 10000 Services
//	           expected  at most half of the 210ms that all of them take
//	           seen      173ms
//	not-run  C01/scenario/affinity, C01/scenario/sctp, and 2 more: does not claim sctp
func (r Report) String() string {
	var b strings.Builder
	b.WriteString(r.Verdict() + "\n")
	for _, status := range []Status{Fail, Limit, NotRun} {
		var reasons []string
		checks := make(map[string][]string) // by reason
		for _, f := range having(r.Findings, status) {
			why := f.why()
			if checks[why] == nil {
				reasons = append(reasons, why)
			}
			checks[why] = append(checks[why], f.Check)
		}
		for _, why := range reasons {
			b.WriteString("\n" + status.line(strings.Join(firstFew(checks[why]), ", ")+why))
		}
	}
	return b.String()
}

// why returns the reason to write behind the name of a check. The expected and seen values are on
// separate lines.
func (f Finding) why() (text string) {
	if f.Reason != "" {
		text = ": " + f.Reason
	}
	if f.Want != "" || f.Seen != "" {
		indent := strings.NewReplacer("\n", "\n          ")
		text += "\nexpected  " + indent.Replace(f.Want) + "\nseen      " + indent.Replace(f.Seen)
	}
	return text
}
