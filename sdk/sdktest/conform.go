// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Subject is a dataplane to be held to the contract: here is how to make me,
// here is where to send me packets.
type Subject struct {
	// Start begins a life of it, as a process does. Several checks begin a second
	// one with the same state directory when the first has ended.
	Start func(ctx context.Context, stateDir string) (sdk.Dataplane, error)

	// Stop ends that life without cleaning up. Nil: there is nothing to end.
	Stop func(sdk.Dataplane)

	// Name is what the dataplane has to call itself, as its binary's name says. Empty: it may have any.
	Name string

	// Path is the file or the address that is held to the contract, for the report.
	Path string

	// Single says that there is one process, which Start connects to and Stop leaves running, in
	// Standby and without anything that it was sent. Checks for which it would have to end are not run.
	Single bool

	// Second connects to another process of a Single one, which serves nothing; Stop leaves it running,
	// too. Nil: there is none. Checks that need it are not run then, and since a swap is one of them, the
	// dataplane is not shown to conform.
	Second func(ctx context.Context, stateDir string) (sdk.Dataplane, error)

	Options []byte // for Configure

	// Timeout is how long one call may take. Zero: a minute.
	Timeout time.Duration

	// Testbed is where packets are sent. Nil: a Loopback for a dataplane that
	// serves only the addresses the node has, and otherwise the checks that need
	// packets are not run.
	Testbed Testbed

	// Disturb takes away, behind the dataplane's back, part of what it keeps in
	// the kernel. Nil: drift is not checked.
	Disturb func(context.Context) error

	// Foreign is everything on the node that is not the dataplane's own, in any
	// text that is the same while nothing changes. Nil: that it is left alone is
	// not checked.
	Foreign func(context.Context) (string, error)
}

// InProcess returns a Subject made in this process, joined by both ends of the wire as
// a plugin's process is, so that everything that Serve does is done. Where the
// kernel would end what a process held, as its listeners, an io.Closer is closed. One
// that is none, and declares that all it serves dies with its process, has to clean up.
func InProcess(d sdk.Description, make func() sdk.Dataplane) Subject {
	var lives sync.Map // from *wire.Remote to what ends what is behind it
	return Subject{
		Start: func(ctx context.Context, _ string) (sdk.Dataplane, error) {
			dp := make()
			remote, err := wire.Local(ctx, d, dp)
			if err != nil {
				return nil, err
			}
			if end := ending(d, dp); end != nil {
				lives.Store(remote, end)
			}
			return remote, nil
		},
		Stop: func(dp sdk.Dataplane) {
			stopLocal(dp)
			if end, ok := lives.LoadAndDelete(dp); ok {
				end.(func())()
			}
		},
	}
}

// ending ends what the process would have held; nil: nothing does. As with a process, there
// is no answer.
func ending(d sdk.Description, dp sdk.Dataplane) func() {
	if c, ok := dp.(io.Closer); ok {
		return func() { _ = c.Close() }
	}
	if !limited(d, sdk.LimitDiesWithProcess) {
		return nil
	}
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = returns(ctx, func(ctx context.Context) error {
			_, err := dp.Cleanup(ctx, sdk.Leftovers{})
			return err
		})
	}
}

// stopLocal ends both ends of the wire in this process.
func stopLocal(dp sdk.Dataplane) {
	r, ok := dp.(*wire.Remote)
	if !ok {
		return
	}
	if r.Shutdown(context.Background()) == nil {
		select {
		case <-r.Exited():
		case <-time.After(3 * time.Second): // a call that does not return is left behind
		}
	}
	_ = r.Close() // nothing more is to be learnt of it
}

// T gets what the suite finds, and decides what is run. See Testing and Check.
type T interface {
	Context() context.Context
	TempDir() string
	Check(name string, run func() Finding)
}

// Conform holds s to the contract, line by line.
func Conform(t T, s Subject) {
	s.Testbed = testbedFor(t, s)
	if busy := testbedIsFree(t, s); busy.Status == Fail {
		t.Check(busy.Check, func() Finding { return busy })
		return // everything else would fail for the same reason
	}
	for _, c := range checks() {
		t.Check(c.name, func() Finding { return c.find(t, s) })
	}
}

// testbedFor asks the dataplane what it is, and chooses where to send packets.
func testbedFor(t T, s Subject) Testbed {
	if s.Testbed != nil {
		return s.Testbed
	}
	d, err := describe(t, s)
	if err == nil && limited(d, sdk.LimitOwnAddressesOnly) {
		return Loopback()
	}
	return nil
}

// describe returns what the dataplane says of itself on this node.
func describe(t T, s Subject) (sdk.Description, error) {
	tr, err := begin(t, s)
	if err != nil {
		return sdk.Description{}, err
	}
	defer tr.end()
	return tr.description, nil
}

// Options are for Check and ConformBinary.
type Options struct {
	Run     *regexp.Regexp // only checks with matching names; a report of a part cannot conform. Nil: all
	Verbose bool           // print a line as each check ends
	TempDir string         // for state directories; empty: the system's
	Plugin  []byte         // ConformBinary's plugin's own options, as JSON
	Out     io.Writer      // where to; nil: nowhere
}

// Check runs the suite and reports. The error says why it could not begin, or was
// cut short.
func Check(ctx context.Context, s Subject, o Options) (Report, error) {
	c := &collector{ctx: ctx, options: o}
	d, err := describe(c, s)
	if err != nil {
		return Report{}, fmt.Errorf("begin conformance: %w", err)
	}
	c.report = Report{Name: d.Name, Version: d.Version, Subject: s.Path, Features: d.Features, Limits: d.Limits, Partial: o.Run != nil}
	Conform(c, s)
	if err := ctx.Err(); err != nil {
		return c.report, fmt.Errorf("conformance was cut short: %w", err)
	}
	if len(c.report.Findings) == 0 {
		return c.report, errors.New("no check has a name that matches")
	}
	return c.report, nil
}

// ConformBinary runs Check for a plugin's binary. What is printed to out shows how far the
// suite is; the report's String says it all.
func ConformBinary(ctx context.Context, path string, out io.Writer, o Options) (Report, error) {
	o.Out = out
	s := Binary(path)
	s.Options = o.Plugin
	return Check(ctx, s, o)
}

// A collector is the T that makes a report.
type collector struct {
	ctx     context.Context
	options Options
	report  Report
}

func (c *collector) Context() context.Context { return c.ctx }
func (c *collector) TempDir() string          { return c.options.TempDir }

func (c *collector) Check(name string, run func() Finding) {
	left := c.options.Run != nil && !c.options.Run.MatchString(name)
	if left && name != testbedCheck || c.ctx.Err() != nil {
		return
	}
	f := run()
	c.report.Findings = append(c.report.Findings, f)
	if c.options.Out != nil && c.options.Verbose {
		fmt.Fprintln(c.options.Out, f)
	}
}

// A Tester is what the suite uses of *testing.T.
type Tester[R any] interface {
	Run(name string, f func(R)) bool
	Context() context.Context
	TempDir() string
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Skipf(format string, args ...any)
}

// Testing makes a T of a *testing.T: each check is a subtest.
func Testing[R Tester[R]](t R) T { return tester[R]{t} }

type tester[R Tester[R]] struct{ t R }

func (t tester[R]) Context() context.Context { return t.t.Context() }
func (t tester[R]) TempDir() string          { return t.t.TempDir() }

func (t tester[R]) Check(name string, run func() Finding) {
	t.t.Run(name, func(sub R) {
		switch f := run(); {
		case f.Status == Fail, f.Status == NotRun && f.Needed:
			sub.Errorf("%s", f)
		case f.Status == NotRun:
			sub.Skipf("%s", f.Reason)
		case f.Status == Limit:
			sub.Logf("%s", f)
		}
	})
}

// checks are all lines of the contract, in order.
func checks() []check {
	all := []check{
		{"C00/description", true, describesItself},
		{"C00/same-setup-twice", true, sameSetupTwice},
		{"C00/first-is-full", true, firstIsFull},
		{"C00/new-session-starts-over", true, newSessionStartsOver},
		{"C00/older-session-is-fenced", false, olderIsFenced},
		{"C01/packets-are-sent", true, packetsAreSent},
	}
	all = slices.Concat(all, scenarioChecks("C01/scenario/", false), scenarioChecks("C02/scenario/", true))
	return append(all,
		check{"C02/affinity", false, affinityIsKept},
		check{"C02/affinity-over-frontends", false, affinityOverFrontends},
		check{"C03/gap-resyncs", true, gapResyncs},
		check{"C03/full-twice", true, fullTwice},
		check{"C03/full-drops-stale", true, fullDropsStale},
		check{"C03/delta-twice", true, deltaTwice},
		check{"C03/delete-of-nothing", true, deleteOfNothing},
		check{"C03/random-walk", true, randomWalk},
		check{"C03/established-tcp-stays", false, establishedStays},
		check{"C04/one-bad-service", true, isolates(unknownKind)},
		check{"C04/bad-keeps-what-served", true, badKeepsWhatServed},
		check{"C04/address-not-ours", true, addressNotOurs},
		check{"C05/ten-thousand-services", true, tenThousandServices},
		check{"C06/restart", true, restartAdopts},
		check{"C06/foreign-stays", false, foreignStays},
		check{"C06/dry-run-only-names", true, dryRunOnlyNames},
		check{"C06/cleanup-leaves-nothing", true, cleanupLeavesNothing},
		check{"C06/cleanup-of-nothing", true, cleanupOfNothing},
		check{"C07/begins-in-standby", true, beginsInStandby},
		check{"C07/any-role-to-any", true, anyRoleToAny},
		check{"C07/only-active-catches", true, onlyActiveCatches},
		check{"C07/standby-inspects", true, inspectsInStandby},
		check{"C07/swap-under-load", true, swapsUnderLoad},
		check{"C07/draining-keeps-established", false, drainingKeeps},
		check{"C07/every-role-keeps-established", false, everyRoleKeeps("cluster-ip")},
		check{"C07/every-role-keeps-established-by-node-port", false, everyRoleKeeps("node-port")},
		check{"C07/yielded-catches-up", true, yieldedCatchesUp},
		check{"C08/second-only-plans", false, secondOnlyPlans},
		check{"C08/second-takes-over-from-yielded", false, secondTakesOver(func(first *trial) { first.role(sdk.Yielded) })},
		check{"C08/second-takes-over-from-dead", false, secondTakesOver(func(first *trial) { first.needsEnd(); first.stop() })},
		check{"C08/yielded-never-tries", true, yieldedNeverTries},
		check{"C09/udp-leaves-the-gone", false, udpLeavesTheGone},
		check{"C09/udp-stays-with-the-others", false, udpStaysWithOthers},
		check{"C09/udp-stays-with-who-still-serves", false, udpStaysWithServing},
		check{"C09/udp-stays-when-nobody-serves", false, udpStaysWithoutEndpoints},
		check{"C10/frontend-changes-owner", true, frontendChangesOwner},
		check{"C11/ended-context", true, endedContext},
		check{"C11/context-ends-in-sync", true, contextEndsInSync},
		check{"C11/inspect-and-report-beside", true, besideSync},
		check{"C11/no-children-left", false, noChildrenLeft},
		check{"C12/drift-is-repaired", false, driftIsRepaired},
		check{"C13/unknown-protocol", true, isolates(unknownProtocol)},
		check{"C13/unknown-family", true, isolates(unknownFamily)},
		check{"C13/unknown-kind", true, isolates(unknownKind)},
		check{"C13/unknown-policy", true, isolates(unknownPolicy)},
	)
}
