// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A check is one line of the contract, or a part of one.
type check struct {
	name   string
	needed bool // not run, it disqualifies
	run    func(*trial)
}

// A check's error is a failure, unless it is one of the first three.
type (
	notRun   struct{ why string }
	excused  struct{ why string } // not run, and rightly so
	byLimits struct{ limits []sdk.Limit }
	mismatch struct{ want, seen string } // a failure that can say both
)

func (e notRun) Error() string   { return e.why }
func (e excused) Error() string  { return e.why }
func (e byLimits) Error() string { return "as declared: " + join(e.limits) }
func (e mismatch) Error() string { return "expected " + e.want + "; seen " + e.seen }

var noPackets = notRun{"no packets can be sent to it here (a test can give a Testbed)"}

// by returns the outcome that a declared limit has instead of the contract's.
func by(l sdk.Limit) error { return byLimits{[]sdk.Limit{l}} }

// checkTime is how long one check may take. It is there so that a hung dataplane
// does not hang the suite.
const checkTime = 3 * time.Minute

// find runs the check on a life of its own.
func (c check) find(t T, s Subject) Finding {
	f := Finding{Check: c.name, Status: Pass, Needed: c.needed}
	if c.onlyPackets() && s.Testbed == nil {
		f.conclude(noPackets) // it needs no life to say so
		return f
	}
	done, err := s.exclusive(t.Context())
	if err != nil {
		f.conclude(err)
		return f
	}
	defer done()
	began := time.Now()
	f.conclude(c.try(t, s))
	f.Took = time.Since(began).Round(time.Millisecond)
	return f
}

// onlyPackets reports whether nothing of c can be tried without packets, as is so
// with a scenario.
func (c check) onlyPackets() bool { return strings.Contains(c.name, "/scenario/") }

// try runs the check on a goroutine of its own, which a step that fails ends.
func (c check) try(t T, s Subject) error {
	tr, err := begin(t, s)
	if err != nil {
		return err
	}
	defer tr.end()
	done := make(chan struct{})
	go func() { // ends with the check
		defer close(done)
		c.run(tr)
	}()
	<-done
	return *tr.failure
}

// conclude says what a check's error comes to.
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

// A trial is a life of the subject, for one check: configured, in no role yet. The steps of a
// check are its methods that return no error: one that fails ends the check, as t.Fatal ends
// a test.
type trial struct {
	subject     Subject
	ctx         context.Context
	cancel      context.CancelFunc
	dp          sdk.Dataplane
	description sdk.Description
	stateDir    string
	revision    uint64 // last acknowledged
	yielded     bool   // the last role that was set
	part        string // of the check, for its errors
	failure     *error // shared with a second life; nil in it: the check has passed so far
	after       []func()
}

func begin(t T, s Subject) (*trial, error) {
	dir, err := os.MkdirTemp(t.TempDir(), "conform-")
	if err != nil {
		return nil, fmt.Errorf("make a state directory: %w", err)
	}
	tr := &trial{subject: s, stateDir: dir, failure: new(error)}
	tr.ctx, tr.cancel = context.WithTimeout(t.Context(), checkTime)
	if err := tr.start(); err != nil {
		tr.cancel()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return tr, nil
}

// another is a second life beside this one. It is ended before this one is, and what it
// wrote is taken away: the first may be gone by then.
func (t *trial) another() *trial {
	t.needsSecond()
	second := &trial{subject: t.subject.other(), ctx: t.ctx, stateDir: t.stateDir, failure: t.failure}
	t.need(second.start())
	t.cleanup(func() {
		if !second.leavesNothing() {
			second.clear()
		}
		second.stop()
	})
	return second
}

// cleanup has f called when the check has ended, however it did.
func (t *trial) cleanup(f func()) { t.after = append(t.after, f) }

// during says which part of the check begins, for its errors.
func (t *trial) during(format string, args ...any) { t.part = fmt.Sprintf(format, args...) }

// fail ends the check with err, which need not be a failure: see conclude.
func (t *trial) fail(err error) {
	if t.part != "" {
		err = fmt.Errorf("%s: %w", t.part, err)
	}
	*t.failure = err
	runtime.Goexit()
}

// need ends the check with err, unless it is nil.
func (t *trial) need(err error) {
	if err != nil {
		t.fail(err)
	}
}

// start begins a life and a session.
func (t *trial) start() (err error) {
	t.yielded = false
	if t.dp, err = t.subject.Start(t.ctx, t.stateDir); err != nil {
		return fmt.Errorf("start the dataplane: %w", err)
	}
	return t.configure()
}

func (t *trial) configure() (err error) {
	t.revision = 0
	if t.description, err = t.dp.Configure(t.ctx, t.setup()); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

func (t *trial) setup() sdk.Setup {
	return sdk.Setup{Options: t.subject.Options, StateDir: t.stateDir, Log: slog.New(slog.DiscardHandler)}
}

// stop ends the present life, leaving what it left.
func (t *trial) stop() {
	if t.subject.Stop != nil && t.dp != nil {
		t.subject.Stop(t.dp)
	}
}

// end leaves no trace for the next check.
func (t *trial) end() {
	for _, f := range slices.Backward(t.after) {
		f()
	}
	if !t.leavesNothing() {
		t.clear()
	}
	t.stop()
	t.cancel()
	_ = os.RemoveAll(t.stateDir)
}

// clear takes away what the life has left in the kernel.
func (t *trial) clear() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), min(t.timeout(), 20*time.Second))
	defer cancel()
	done := make(chan struct{})
	go func() { // ends with Cleanup; a dataplane that never returns is left behind
		defer close(done)
		if t.subject.Single { // the next check begins with this process, and it in Standby
			_ = t.dp.SetRole(ctx, sdk.Standby)
		}
		_, _ = t.dp.Cleanup(ctx, sdk.Leftovers{})
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// leavesNothing reports whether all that the life has made is gone with its process, as it declares: it
// redirects no packets, and nothing of it stays in the kernel. To have it clean up before it ends would take
// most of the suite's time.
func (t *trial) leavesNothing() bool {
	d := t.description
	return t.subject.Stop != nil && !t.subject.Single && limited(d, sdk.LimitDiesWithProcess) && limited(d, sdk.LimitOwnAddressesOnly)
}

// sync sends u as the next update, which must be taken whole.
func (t *trial) sync(u sdk.Update) { t.need(t.takes(u)) }

// takes reports why u was not taken whole, if so.
func (t *trial) takes(u sdk.Update) error {
	r, err := t.offer(u)
	if err != nil {
		return err
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("sync failed for %s: %w", r.Failed[0].Name, r.Failed[0].Err)
	}
	if r.Planned && !t.yielded {
		return t.planned(r)
	}
	return nil
}

// offer sends u as the next update.
func (t *trial) offer(u sdk.Update) (sdk.Result, error) {
	u.From, u.To = t.revision, t.revision+1
	if u.Full {
		u.From = 0
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout())
	defer cancel()
	var r sdk.Result
	err := returns(ctx, func(ctx context.Context) (err error) {
		r, err = t.dp.Sync(ctx, u)
		return err
	})
	if err != nil {
		return sdk.Result{}, fmt.Errorf("sync to revision %d: %w", u.To, err)
	}
	t.revision = u.To
	return r, nil
}

func (t *trial) timeout() time.Duration {
	if t.subject.Timeout > 0 {
		return t.subject.Timeout
	}
	return time.Minute
}

// serve puts a scenario's state in place and makes the dataplane Active.
func (t *trial) serve(s Scenario) {
	t.sync(s.Update(0))
	t.role(sdk.Active)
}

func (t *trial) role(r sdk.Role) {
	if err := t.dp.SetRole(t.ctx, r); err != nil {
		t.fail(fmt.Errorf("set role %s: %w", r, err))
	}
	t.yielded = r == sdk.Yielded
}

// place moves s to the testbed, where there is one.
func (t *trial) place(s Scenario) (Scenario, []string) {
	if t.subject.Testbed == nil {
		return s, nil
	}
	return t.subject.Testbed.Place(s)
}

// scenario is one of this package's, placed.
func (t *trial) scenario(name string) Scenario {
	s, err := read(name + ".txtar")
	t.need(err)
	if lacks := s.Lacks(t.description); len(lacks) > 0 {
		t.fail(excused{"does not claim " + join(lacks)})
	}
	s, _ = t.place(s)
	return s
}

// calling is a scenario of which the testbed can express some packets.
func (t *trial) calling(name string, least int) Scenario {
	s := t.scenario(name)
	if len(s.Packets) < least {
		t.fail(notRun{"the testbed can express too few of the packets"})
	}
	return s
}
