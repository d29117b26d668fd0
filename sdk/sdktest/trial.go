// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A check is one line of the contract, or a part of one.
type check struct {
	name   string
	needed bool // not run, it disqualifies
	run    func(*trial) error
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

var noPackets = notRun{"no packets can be sent to it here (a test can give a Ground)"}

// by is the outcome that a declared limit has instead of the contract's.
func by(l sdk.Limit) error { return byLimits{[]sdk.Limit{l}} }

// checkTime is how long one check may take. It is there so that a hung dataplane
// does not hang the suite.
const checkTime = 3 * time.Minute

// find runs the check on a life of its own.
func (c check) find(t T, s Subject) Finding {
	f := Finding{Check: c.name, Status: Pass, Needed: c.needed}
	if c.onlyPackets() && s.Ground == nil {
		f.judge(noPackets) // it needs no life to say so
		return f
	}
	done, err := s.turn(t.Context())
	if err != nil {
		f.judge(err)
		return f
	}
	defer done()
	began := time.Now()
	f.judge(c.try(t, s))
	f.Took = time.Since(began).Round(time.Millisecond)
	return f
}

// onlyPackets reports whether nothing of c can be tried without packets, as is so
// with a scenario.
func (c check) onlyPackets() bool { return strings.Contains(c.name, "/scenario/") }

func (c check) try(t T, s Subject) error {
	tr, err := begin(t, s)
	if err != nil {
		return err
	}
	defer tr.end()
	return c.run(tr)
}

// judge says what a check's error comes to.
func (f *Finding) judge(err error) {
	var limits byLimits
	var left notRun
	var rightly excused
	var differs mismatch
	switch {
	case err == nil:
	case errors.As(err, &limits):
		f.Status, f.Reason, f.Limits = Limit, err.Error(), limits.limits
	case errors.As(err, &left):
		f.Status, f.Reason = NotRun, left.why
	case errors.As(err, &rightly):
		f.Status, f.Reason, f.Needed = NotRun, rightly.why, false
	default:
		f.Status, f.Reason = Fail, err.Error()
		if errors.As(err, &differs) {
			f.Want, f.Seen = differs.want, differs.seen
		}
	}
}

// A trial is a life of the subject, for one check: configured, in no role yet.
type trial struct {
	subject     Subject
	ctx         context.Context
	cancel      context.CancelFunc
	dp          sdk.Dataplane
	description sdk.Description
	stateDir    string
	revision    uint64 // last acknowledged
}

func begin(t T, s Subject) (*trial, error) {
	dir, err := os.MkdirTemp(t.TempDir(), "conform-")
	if err != nil {
		return nil, fmt.Errorf("make a state directory: %w", err)
	}
	tr := &trial{subject: s, stateDir: dir}
	tr.ctx, tr.cancel = context.WithTimeout(t.Context(), checkTime)
	if err := tr.start(); err != nil {
		tr.cancel()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return tr, nil
}

// start begins a life and a session.
func (t *trial) start() (err error) {
	if t.dp, err = t.subject.Start(t.ctx, t.stateDir); err != nil {
		return fmt.Errorf("start the dataplane: %w", err)
	}
	return t.configure()
}

func (t *trial) configure() (err error) {
	t.revision = 0
	setup := sdk.Setup{Options: t.subject.Options, StateDir: t.stateDir, Log: slog.New(slog.DiscardHandler)}
	if t.description, err = t.dp.Configure(t.ctx, setup); err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// stop ends the present life, leaving what it left.
func (t *trial) stop() {
	if t.subject.Stop != nil && t.dp != nil {
		t.subject.Stop(t.dp)
	}
}

// end leaves no trace for the next check.
func (t *trial) end() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.ctx), min(t.patience(), 20*time.Second))
	defer cancel()
	done := make(chan struct{})
	go func() { // ends with Cleanup; a dataplane that never returns is left behind
		defer close(done)
		_, _ = t.dp.Cleanup(ctx, sdk.Leftovers{})
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	t.stop()
	t.cancel()
	_ = os.RemoveAll(t.stateDir)
}

// sync sends u as the next update and expects it to be taken whole.
func (t *trial) sync(u sdk.Update) error {
	r, err := t.offer(u)
	if err != nil {
		return err
	}
	if len(r.Failed) > 0 {
		return fmt.Errorf("sync failed for %s: %w", r.Failed[0].Name, r.Failed[0].Err)
	}
	return nil
}

// offer sends u as the next update.
func (t *trial) offer(u sdk.Update) (sdk.Result, error) {
	u.From, u.To = t.revision, t.revision+1
	if u.Full {
		u.From = 0
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.patience())
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

func (t *trial) patience() time.Duration {
	if t.subject.Patience > 0 {
		return t.subject.Patience
	}
	return time.Minute
}

// serve puts a scenario's state in place and makes the dataplane Active.
func (t *trial) serve(s Scenario) error {
	if err := t.sync(s.Update(0)); err != nil {
		return err
	}
	return t.role(sdk.Active)
}

func (t *trial) role(r sdk.Role) error {
	if err := t.dp.SetRole(t.ctx, r); err != nil {
		return fmt.Errorf("set role %s: %w", r, err)
	}
	return nil
}

// place moves s to the ground, where there is one.
func (t *trial) place(s Scenario) (Scenario, []string) {
	if t.subject.Ground == nil {
		return s, nil
	}
	return t.subject.Ground.Place(s)
}

// scenario is one of this package's, placed.
func (t *trial) scenario(name string) (Scenario, error) {
	s, err := read(name + ".txtar")
	if err != nil {
		return s, err
	}
	if lacks := s.Lacks(t.description); len(lacks) > 0 {
		return s, excused{"does not claim " + join(lacks)}
	}
	s, _ = t.place(s)
	return s, nil
}

// inspect is what the dataplane says it serves, a frontend a line.
func (t *trial) inspect() ([]string, error) {
	i, ok := t.dp.(sdk.Inspector)
	if !ok {
		return nil, wire.ErrUnsupported
	}
	var lines []string
	err := i.Inspect(t.ctx, func(s sdk.Served) error {
		lines = append(lines, servedLine(s))
		return nil
	})
	slices.Sort(lines)
	return lines, err
}

func servedLine(s sdk.Served) string {
	// Who may call is asked with packets: a dataplane need not keep the ranges as told.
	f := sdk.Frontend{Kind: s.Frontend.Kind, Addr: s.Frontend.Addr, Policy: s.Frontend.Policy}
	endpoints := slices.Clone(s.Endpoints)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	return fmt.Sprintf("%s %s = %v", s.Name, f, endpoints)
}

// wanted are the lines that services come to.
func wanted(services []sdk.Service) []string {
	var lines []string
	for _, s := range services {
		for _, f := range s.Frontends {
			served := sdk.Served{Name: s.Name, Frontend: f}
			for _, ep := range s.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			lines = append(lines, servedLine(served))
		}
	}
	slices.Sort(lines)
	return lines
}

// serves checks that the dataplane serves exactly s: by asking it, and where it
// cannot say, with s's packets.
func (t *trial) serves(s Scenario) error { return t.servesBy(s, t.packets) }

// servesBy is serves, where packets are sent otherwise.
func (t *trial) servesBy(s Scenario, packets func(Scenario) error) error {
	got, err := t.inspect()
	if errors.Is(err, wire.ErrUnsupported) {
		return settled(packets(s))
	}
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if want := wanted(s.Services); !slices.Equal(got, want) {
		return mismatch{want: besides(want, got), seen: besides(got, want)}
	}
	return nil
}

// settled takes a limit for a pass: it is not what is asked here.
func settled(err error) error {
	var limits byLimits
	if errors.As(err, &limits) {
		return nil
	}
	return err
}

// besides shows the first few of these lines that the others lack.
func besides(these, others []string) string {
	const most = 5
	var lines []string
	for _, l := range these {
		if _, found := slices.BinarySearch(others, l); !found {
			lines = append(lines, l)
		}
	}
	if len(lines) > most {
		lines = append(lines[:most], fmt.Sprintf("and %d more", len(lines)-most))
	}
	if len(lines) == 0 {
		return "nothing else"
	}
	return strings.Join(lines, "\n")
}

func limited(d sdk.Description, l sdk.Limit) bool { return slices.Contains(d.Limits, l) }

func join[S ~string](words []S) string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	return strings.Join(list, ", ")
}
