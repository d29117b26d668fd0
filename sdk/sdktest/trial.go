// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A trial is a life of the subject for one check. It is configured and has no role yet. The
// steps of a check are methods without an error result: a step that fails ends the check, as
// t.Fatal ends a test.
type trial struct {
	subject     Subject
	ctx         context.Context
	cancel      context.CancelFunc
	dp          sdk.Dataplane
	description sdk.Description
	stateDir    string
	revision    uint64 // last acknowledged revision
	part        string // current part of the check, for error messages
	failure     *error // shared with a second life; *failure is nil while the check has not failed
	after       []func()
}

func begin(ctx context.Context, s Subject) (*trial, error) {
	dir, err := os.MkdirTemp("", "conform-")
	if err != nil {
		return nil, fmt.Errorf("make a state directory: %w", err)
	}
	t := &trial{subject: s, stateDir: dir, failure: new(error)}
	t.ctx, t.cancel = context.WithTimeout(ctx, checkTime)
	if err := t.start(); err != nil {
		t.cancel()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return t, nil
}

// secondLife starts a second life beside this one. It is ended first, and what it wrote is
// removed: this life may have ended by then.
func (t *trial) secondLife() *trial {
	second := &trial{subject: t.subject, ctx: t.ctx, stateDir: t.stateDir, failure: t.failure}
	t.need(second.start())
	t.cleanup(func() { second.clear(); second.stop() })
	return second
}

// cleanup registers f to be called when the check ends.
func (t *trial) cleanup(f func()) { t.after = append(t.after, f) }

// during sets the part of the check that begins, for error messages.
func (t *trial) during(format string, args ...any) { t.part = fmt.Sprintf(format, args...) }

// fail ends the check with err, which is not always a failure: see conclude.
func (t *trial) fail(err error) {
	if t.part != "" {
		err = fmt.Errorf("%s: %w", t.part, err)
	}
	*t.failure = err
	runtime.Goexit()
}

// need ends the check with err, unless err is nil.
func (t *trial) need(err error) {
	if err != nil {
		t.fail(err)
	}
}

// start starts a life and a session.
func (t *trial) start() (err error) {
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

// stop ends the current life without cleaning up.
func (t *trial) stop() {
	if t.subject.Stop != nil && t.dp != nil {
		t.subject.Stop(t.dp)
	}
}

// end removes all traces of the trial.
func (t *trial) end() {
	for _, f := range slices.Backward(t.after) {
		f()
	}
	t.clear()
	t.stop()
	t.cancel()
	_ = os.RemoveAll(t.stateDir)
}

// clear removes what the life has left in the kernel. It does nothing if the dataplane dies
// with its process, because cleaning up would then take most of the suite's time.
func (t *trial) clear() {
	d := t.description
	if t.subject.Stop != nil && limited(d, sdk.LimitDiesWithProcess) && limited(d, sdk.LimitOwnAddressesOnly) {
		return
	}
	cleanUp(context.WithoutCancel(t.ctx), t.dp, min(t.timeout(), 20*time.Second))
}

// cleanUp calls Cleanup. A call that never returns is abandoned.
func cleanUp(ctx context.Context, dp sdk.Dataplane, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_ = callWithGrace(ctx, func(ctx context.Context) error {
		_, err := dp.Cleanup(ctx, sdk.Leftovers{})
		return err
	})
}

// sync sends u as the next update, which must succeed for all Services.
func (t *trial) sync(u sdk.Update) { t.need(t.syncAll(u)) }

// syncAll returns an error unless u succeeds for all Services.
func (t *trial) syncAll(u sdk.Update) error {
	return t.retryWhileBusy(func() error { return t.syncOnce(u) })
}

// syncOnce is like syncAll, and does not wait for the writer's lock.
func (t *trial) syncOnce(u sdk.Update) error {
	r, err := t.sendUpdate(u)
	if err == nil && len(r.Failed) > 0 {
		err = fmt.Errorf("sync failed for %s: %w", r.Failed[0].Name, r.Failed[0].Err)
	}
	return err
}

// retryWhileBusy repeats a call as long as it returns *sdk.Busy, because the previous life may
// hold the writer's lock for a moment longer.
func (t *trial) retryWhileBusy(call func() error) error {
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		if err := call(); !errors.As(err, new(*sdk.Busy)) || time.Now().After(end) {
			return err
		}
	}
}

// sendUpdate sends u as the next update.
func (t *trial) sendUpdate(u sdk.Update) (sdk.Result, error) {
	u.From, u.To = t.revision, t.revision+1
	if u.Full {
		u.From = 0
	}
	ctx, cancel := context.WithTimeout(t.ctx, t.timeout())
	defer cancel()
	var r sdk.Result
	err := callWithGrace(ctx, func(ctx context.Context) (err error) {
		r, err = t.dp.Sync(ctx, u)
		return err
	})
	if err != nil {
		return sdk.Result{}, fmt.Errorf("sync to revision %d: %w", u.To, err)
	}
	t.revision = u.To
	return r, nil
}

// grace is how long a call may continue after its context ended. The contract allows one
// second; a loaded machine gets more.
const grace = 10 * time.Second

// callWithGrace runs one call, and returns an error if it continues far beyond the end of its
// context.
func callWithGrace(ctx context.Context, call func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- call(ctx) }() // ends with the call
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(grace):
		return errHung
	}
}

var errHung = errors.New("the call did not return when its context ended")

func (t *trial) timeout() time.Duration {
	if t.subject.Timeout > 0 {
		return t.subject.Timeout
	}
	return time.Minute
}

// poll calls f until it returns nil or the time is over, and returns f's last error.
func poll(ctx context.Context, within time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("after %s still: %w", within, err)
		case <-tick.C:
		}
	}
}

// serve sends a scenario's state and makes the dataplane Active.
func (t *trial) serve(s Scenario) {
	t.sync(s.Update(0))
	t.role(sdk.Active)
}

func (t *trial) role(r sdk.Role) {
	if err := t.retryWhileBusy(func() error { return t.dp.SetRole(t.ctx, r) }); err != nil {
		t.fail(fmt.Errorf("set role %s: %w", r, err))
	}
}

// place maps s to the testbed, if there is one.
func (t *trial) place(s Scenario) (Scenario, []string) {
	if t.subject.Testbed == nil {
		return s, nil
	}
	return t.subject.Testbed.Place(s)
}

// scenario returns one of this package's scenarios, placed.
func (t *trial) scenario(name string) Scenario {
	s, err := read(name + ".txtar")
	t.need(err)
	if lacks := s.Lacks(t.description); len(lacks) > 0 {
		t.fail(excused{"does not claim " + join(lacks)})
	}
	s, _ = t.place(s)
	return s
}

// calling returns a scenario of which the testbed can express at least some packets.
func (t *trial) calling(name string, least int) Scenario {
	s := t.scenario(name)
	if len(s.Packets) < least {
		t.fail(notRun{"the testbed can express too few of the packets"})
	}
	return s
}

// firstFew returns the first few elements, and how many more there are.
func firstFew(list []string) []string {
	if len(list) <= 3 {
		return list
	}
	return append(slices.Clone(list[:3]), fmt.Sprintf("and %d more", len(list)-3))
}

func limited(d sdk.Description, l sdk.Limit) bool { return slices.Contains(d.Limits, l) }

// join joins words, which have no spaces in them.
func join[S ~string](words []S) string {
	return strings.Join(strings.Fields(strings.Trim(fmt.Sprint(words), "[]")), ", ")
}

// packets sends every packet of s, which must be placed and served, and compares the outcomes.
func (t *trial) packets(s Scenario) error {
	if t.subject.Testbed != nil && len(s.Packets) == 0 {
		return nil // do not start thousands of endpoints without a packet for them
	}
	stage, err := t.stage(s)
	if err != nil {
		return err
	}
	defer stage.Close()
	return t.packetsOn(stage, s)
}

// packetsOn is like packets, for endpoints that are already running.
func (t *trial) packetsOn(stage Stage, s Scenario) error {
	used := make(map[sdk.Limit]bool)
	for _, p := range s.Packets {
		keeps := slices.ContainsFunc(s.Services, func(svc sdk.Service) bool { return svc.Name == p.Service && svc.Affinity > 0 })
		if err := t.packet(stage, p, keeps, used); err != nil {
			text, _, _ := strings.Cut(p.Text, " = ")
			return fmt.Errorf("scenario %s, line %d, %s: %w", s.Name, p.Line, text, err)
		}
	}
	if len(used) > 0 {
		return byLimits{slices.Sorted(maps.Keys(used))}
	}
	return nil
}

func (t *trial) stage(s Scenario) (Stage, error) {
	if t.subject.Testbed == nil {
		return nil, noPackets
	}
	stage, err := t.subject.Testbed.Open(t.ctx, t.dp, s)
	if err != nil {
		return nil, fmt.Errorf("make endpoints answer: %w", err)
	}
	return stage, nil
}

// packet sends p until every allowed endpoint has answered, and a few more times to detect
// endpoints that are not allowed. If a client keeps its first endpoint, one endpoint is enough.
func (t *trial) packet(stage Stage, p Packet, keeps bool, used map[sdk.Limit]bool) error {
	n := len(p.Want.Endpoints)
	least, most := 1+2*n, 1+40*n
	if keeps {
		n = min(n, 1)
	}
	var seen []netip.AddrPort
	for i := 0; i < least || i < most && len(seen) < n; i++ {
		a, err := stage.Send(t.ctx, p)
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
		err = t.compare(p, a)
		if limits, ok := errors.AsType[byLimits](err); ok {
			used[limits.limits[0]] = true
		} else if err != nil {
			return err
		}
		if a.Verdict == sdk.Forward && !slices.Contains(seen, a.Endpoint) {
			seen = append(seen, a.Endpoint)
		}
	}
	if len(seen) < n {
		return mismatch{p.Want.String(), fmt.Sprintf("only answers of %v", seen)}
	}
	return nil
}

// compare compares an answer with the packet's outcome.
func (t *trial) compare(p Packet, a Answer) error {
	want, client := p.Want, p.From.Addr
	masquerades := want.Masquerades(a.Endpoint)
	switch {
	case want.Unserved && a.Verdict == sdk.Forward:
		return mismatch{"no answer, because no Service has this destination", a.String()}
	case want.Unserved:
		return nil
	case want.Verdict == sdk.Drop && a.Verdict == sdk.Reject && limited(t.description, sdk.LimitNoDrop):
		return by(sdk.LimitNoDrop)
	case a.Verdict != want.Verdict, want.Verdict == sdk.Forward && !slices.Contains(want.Endpoints, a.Endpoint):
		return mismatch{want.String(), a.String()}
	case want.Verdict != sdk.Forward, p.From.From == sdk.OnNode: // for the node itself, masquerading may not be visible
		return nil
	case masquerades && a.Client == client:
		return mismatch{fmt.Sprintf("%s to see the node", a.Endpoint), fmt.Sprintf("it saw the caller, %s", a.Client)}
	case !masquerades && a.Client != client && limited(t.description, sdk.LimitNoClientAddress):
		return by(sdk.LimitNoClientAddress)
	case !masquerades && a.Client != client:
		return mismatch{fmt.Sprintf("%s to see the caller, %s", a.Endpoint, client), fmt.Sprintf("it saw %s", a.Client)}
	}
	return nil
}

// ignoreLimits treats a result that a limit explains as passed, because the limit is not what this
// check is about.
func ignoreLimits(err error) error {
	if _, ok := errors.AsType[byLimits](err); ok {
		return nil
	}
	return err
}

// ignoreLimitsOrNoTestbed is like ignoreLimits, for packets that only complement Inspect.
func ignoreLimitsOrNoTestbed(err error) error {
	if errors.As(err, new(notRun)) {
		return nil
	}
	return ignoreLimits(err)
}

// inspect returns what the dataplane says it serves, one line per frontend.
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
	// Sources are tested with packets, because a dataplane need not keep the ranges as they
	// were sent.
	f := sdk.Frontend{Kind: s.Frontend.Kind, Addr: s.Frontend.Addr, Policy: s.Frontend.Policy}
	endpoints := slices.Clone(s.Endpoints)
	slices.SortFunc(endpoints, netip.AddrPort.Compare)
	return fmt.Sprintf("%s %s = %v", s.Name, f, endpoints)
}

// wanted returns the lines that inspect should return for services.
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

// serves checks that the dataplane serves exactly s.
func (t *trial) serves(s Scenario) { t.need(t.differs(s)) }

// differs returns how the served state differs from s: from Inspect or, if the dataplane has
// none, from the packets of s.
func (t *trial) differs(s Scenario) error { return t.differsBy(s, t.packets) }

// differsBy is like differs, with a custom way to send packets.
func (t *trial) differsBy(s Scenario, packets func(Scenario) error) error {
	got, err := t.inspect()
	if errors.Is(err, wire.ErrUnsupported) {
		return ignoreLimits(packets(s))
	}
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if want := wanted(s.Services); !slices.Equal(got, want) {
		return mismatch{want: missingFrom(want, got), seen: missingFrom(got, want)}
	}
	return nil
}

// missingFrom describes the first few of these lines that are not in others.
func missingFrom(these, others []string) string {
	var lines []string
	for _, l := range these {
		if _, found := slices.BinarySearch(others, l); !found {
			lines = append(lines, l)
		}
	}
	if len(lines) == 0 {
		return "nothing else"
	}
	return strings.Join(firstFew(lines), "\n")
}
