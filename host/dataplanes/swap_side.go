// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/supervise"
	"github.com/pointsman/pointsman/host/swap"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file is a dataplane as a swap sees it (swap.Dataplane).

// glance is between two looks at something that cannot be waited for.
const glance = 20 * time.Millisecond

// until waits for ok, asked with the mutex held.
func (p *dataplane) until(ctx context.Context, what string, ok func() bool) error {
	for {
		p.mu.Lock()
		done, failure := ok(), p.failure
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s %s: %w", p.name, what, errors.Join(ctx.Err(), p.trouble(failure)))
		case <-time.After(glance):
		}
	}
}

// trouble is what is known to be wrong with it.
func (p *dataplane) trouble(failure string) error {
	if why := p.supervisor.Status().Why; why != "" {
		return errors.New(why)
	}
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

// Filled waits until its process has confirmed everything, and serves that. One that may
// plan has only received it. It does not wait for a plugin that is refused or quarantined,
// which may stay so for long.
func (p *dataplane) Filled(ctx context.Context) error {
	var failed error
	err := p.until(ctx, "has confirmed everything", func() bool {
		failed = p.locked()
		if s := p.supervisor.Status(); s.State == supervise.Refused || s.State == supervise.Quarantined {
			failed = fmt.Errorf("%s is %s: %s", p.name, s.State, s.Why)
		}
		return p.filled && p.mayPlan() || p.wrote() || failed != nil
	})
	return errors.Join(err, failed)
}

// Serving waits until it serves.
func (p *dataplane) Serving(ctx context.Context) error {
	return p.until(ctx, "serves", func() bool { return p.served })
}

// serves reports whether it does, as far as this host has seen: packets find their way by
// what it made, also while its process is away, unless that is what they go through.
func (p *dataplane) serves() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served
}

// observe notes whether it serves, from what its process reports. The caller has the mutex.
func (p *dataplane) observe() {
	locked := p.writing.lock != sdk.LockAwaited && p.writing.lock != sdk.LockReleased
	p.served = p.role == sdk.Active && p.filled && locked && (p.served || p.wrote())
}

// whole reports whether it has.
func (p *dataplane) whole() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.filled
}

// refill has it told everything anew.
func (p *dataplane) refill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor != nil {
		p.filled = false
		p.cursor.Resync()
	}
}

// Hold waits until it has confirmed what there is, and lets no update go to it.
func (p *dataplane) Hold(ctx context.Context) error {
	err := p.until(ctx, "has confirmed what there is", func() bool {
		return p.cursor == nil || p.filled && p.cursor.Status().Pending == 0
	})
	if err != nil {
		return err
	}
	return p.grip(ctx)
}

// grip lets no update go to it until Release.
func (p *dataplane) grip(ctx context.Context) error {
	p.mu.Lock()
	f := p.feed
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	if _, err := f.Hold(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = f
	return nil
}

// Release lets updates go to it again.
func (p *dataplane) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
}

// SetRole is for its process, and for those after it. Who is to serve must have
// one; who is to leave will hear of it when it has.
func (p *dataplane) SetRole(ctx context.Context, role sdk.Role) error {
	p.mu.Lock()
	p.want = role
	p.mu.Unlock()
	if role == sdk.Active {
		if err := p.until(ctx, "has a process", func() bool { return p.remote != nil }); err != nil {
			return err
		}
	}
	give, err := p.take(ctx)
	if err != nil {
		return err
	}
	defer give()
	remote := p.process()
	if remote == nil {
		return nil
	}
	return p.become(ctx, remote, role)
}

// process is the one in session; nil: there is none.
func (p *dataplane) process() *wire.Remote {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.remote
}

// Verify compares what the kernel serves with what it was told, while no update is
// under way, and once all that it only planned is written.
func (p *dataplane) Verify(ctx context.Context) (bool, error) {
	if err := p.written(ctx); err != nil {
		return false, err
	}
	if err := p.grip(ctx); err != nil {
		return false, err
	}
	defer p.Release()
	p.mu.Lock()
	remote, cursor := p.remote, p.cursor
	p.mu.Unlock()
	if remote == nil || cursor == nil {
		return false, errNoProcess
	}
	told := cursor.Told()
	if n := cursor.Wanted(); len(told) == 0 && n > 0 {
		return false, fmt.Errorf("it has confirmed nothing, and %s are to be served", phrase.Count(n, "port of a Service"))
	}
	v := swap.Expect(told)
	err := remote.Inspect(ctx, func(s sdk.Served) error { v.Saw(s); return nil })
	if errors.Is(err, wire.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect: %w", err)
	}
	return true, v.Differences()
}

// ReadyInStandby reports whether it has all but the ways in already in Standby. Who can only
// listen where the frontends are cannot, while another one does.
func (p *dataplane) ReadyInStandby() bool {
	limits := p.supervisor.Status().Description.Limits
	return !slices.Contains(limits, sdk.LimitDiesWithProcess) || !slices.Contains(limits, sdk.LimitOwnAddressesOnly)
}

var errNoProcess = errors.New("its process is gone")

// ExportAffinity lists which clients keep which endpoints; none if the plugin cannot say.
func (p *dataplane) ExportAffinity(ctx context.Context) ([]sdk.AffinityEntry, error) {
	remote := p.process()
	if remote == nil {
		return nil, nil
	}
	var entries []sdk.AffinityEntry
	err := remote.ExportAffinity(ctx, func(e sdk.AffinityEntry) error { entries = append(entries, e); return nil })
	if errors.Is(err, wire.ErrUnsupported) {
		err = nil
	}
	return entries, err
}

// ImportAffinity has the plugin keep clients at their endpoints, if it can.
func (p *dataplane) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	remote := p.process()
	if remote == nil {
		return errNoProcess
	}
	if err := remote.ImportAffinity(ctx, entries); !errors.Is(err, wire.ErrUnsupported) {
		return err
	}
	return nil
}

// Progress is how far its process has come, as it told with its last beat.
func (p *dataplane) Progress() uint64 { return p.supervisor.Status().Vitals.Progress }

// Flows are what is left of those it has begun. Of a process that is still to come into
// session they are not known: a host before may have left it, with flows. Nor are they of
// one that has not heard its role yet: it counts them while it drains.
func (p *dataplane) Flows(ctx context.Context) (int, error) {
	p.mu.Lock()
	remote, told := p.remote, p.role == p.want
	p.mu.Unlock()
	switch {
	case remote != nil && !told:
		return 0, errUntold
	case remote != nil:
		vitals, err := remote.Vitals(ctx)
		return vitals.Flows, err
	case p.supervisor.Status().Coming():
		return 0, errComing
	}
	return 0, nil
}

var (
	errComing = errors.New("its process is not in session yet")
	errUntold = errors.New("its process has not been told its role yet")
)

// ends is what a change to another mode would end, or, of the one to come, what the change
// to it would, in its own words; empty: nothing.
func (p *dataplane) ends(ctx context.Context) string {
	remote := p.process()
	if remote == nil {
		return ""
	}
	vitals, err := remote.Vitals(ctx)
	if err != nil {
		return "" // who cannot say so must not keep the mode from being changed
	}
	return vitals.SwapImpact
}

// Cleanup removes it from the node. It is told nothing more, or it would come
// back; and what its process cannot do, another one of its binary does. Of a plugin that
// runs by itself that is the next one in session, when Cleanup is called again. Where
// another process is the writer of its mode it only ends: the rules are that one's.
func (p *dataplane) Cleanup(ctx context.Context) error {
	p.mu.Lock()
	p.leaving = true
	elsewhere, holder := p.writing.lock == sdk.LockAwaited, p.writing.holder
	p.mu.Unlock()
	defer p.Release()
	if elsewhere {
		p.log.Info("the rules of this mode are left to the process that writes them", "plugin", p.name, "holder", holder)
		p.Stop()
		return nil
	}
	err := p.clear(ctx)
	if err != nil && p.plugin.Address != "" {
		return fmt.Errorf("%s at %s did not clean up after itself: %w; if it stays so, run there: pointsman-dataplane-%s cleanup", p.name, p.plugin.Address, err, p.name)
	}
	p.Stop()
	if err == nil {
		return nil
	}
	if !errors.Is(err, errNoProcess) {
		p.log.Warn("cleanup by its own process", "plugin", p.name, "err", err)
	}
	_, err = verb(ctx, p.plugin.Path, p.plugin.SHA256, "cleanup")
	return err
}

// clear has its process clean up after itself, and after those before it. No update
// goes to it any more.
func (p *dataplane) clear(ctx context.Context) error {
	remote := p.process()
	if remote == nil {
		return errNoProcess
	}
	if err := p.grip(ctx); err != nil {
		return err
	}
	_, err := remote.Cleanup(ctx, sdk.Leftovers{})
	return err
}

// start begins to run its process, until ctx ends or Stop.
func (p *dataplane) start(ctx context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	p.mu.Lock()
	p.ctx, p.cancel, p.ended = ctx, cancel, ended
	p.mu.Unlock()
	go func() { // ends with ctx; Stop and wait wait for it
		defer close(ended)
		p.hunts.Go(func() { p.visit(ctx) })
		p.supervisor.Run(ctx)
		p.hunts.Wait()
	}()
}

// life ends with Stop.
func (p *dataplane) life() context.Context {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ctx
}

// Stop ends its process; what is in the kernel stays.
func (p *dataplane) Stop() {
	p.mu.Lock()
	cancel := p.cancel
	p.mu.Unlock()
	if cancel != nil {
		cancel(errNotNeeded)
		p.wait()
	}
}

var errNotNeeded = errors.New("it is no longer needed")

// wait for its end.
func (p *dataplane) wait() {
	p.mu.Lock()
	ended := p.ended
	p.mu.Unlock()
	if ended != nil {
		<-ended
	}
}

// over reports whether its process was stopped for good.
func (p *dataplane) over() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// status is how far it has followed, and what it fails to serve.
func (p *dataplane) status() track.CursorStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cursor == nil {
		return track.CursorStatus{}
	}
	return p.cursor.Status()
}

// fails are the Services that it does not serve as they ask.
func (p *dataplane) fails() map[sdk.Name]bool {
	fails := make(map[sdk.Name]bool)
	for name := range unservedBy(p.status()) {
		fails[name] = true
	}
	return fails
}
