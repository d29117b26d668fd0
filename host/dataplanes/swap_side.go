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
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A swapSide is a dataplane as a swap sees it (swap.Dataplane).
type swapSide struct{ *dataplane }

var _ swap.Dataplane = swapSide{}

// lookAgain is how long until waits without a change: time alone changes little.
const lookAgain = time.Second / 4

// until waits for ok, asked with the mutex held.
func (p *dataplane) until(ctx context.Context, what string, ok func() bool) error {
	for {
		changed := p.changes.wait()
		p.mu.Lock()
		done, failure := ok(), p.followed.failure
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s %s: %w", p.name, what, errors.Join(ctx.Err(), p.trouble(failure)))
		case <-changed:
		case <-time.After(lookAgain):
		}
	}
}

// trouble returns what is known to be wrong with it.
func (p *dataplane) trouble(failure string) error {
	if why := p.status().Why; why != "" {
		return errors.New(why)
	}
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

// Filled waits until its process has confirmed everything. One that takes the place of another process of its mode
// may wait for the writer's lock. It does not wait for a plugin that is refused, which may stay so for long.
func (p swapSide) Filled(ctx context.Context) error {
	var failed error
	err := p.until(ctx, "has confirmed everything", func() bool {
		failed = p.lockMissing()
		if s := p.status(); s.State == supervise.Refused {
			failed = fmt.Errorf("%s is %s: %s", p.name, s.State, s.Why)
		}
		return p.session.filled() || p.succeeds && p.writer.busy != nil || failed != nil
	})
	return errors.Join(err, failed)
}

// Serving waits until it serves.
func (p swapSide) Serving(ctx context.Context) error {
	return p.until(ctx, "serves", func() bool { return p.served })
}

// comeUp waits until it is in session, or has failed to be.
func (p swapSide) comeUp(ctx context.Context) error {
	var failed error
	err := p.until(ctx, "is up", func() bool {
		switch s := p.status(); s.State {
		case supervise.Waiting, supervise.Refused:
			failed = fmt.Errorf("%s is %s: %s", p.name, s.State, s.Why)
		}
		return p.session != nil || failed != nil
	})
	return errors.Join(err, failed)
}

// Hold waits until it has confirmed what there is, and lets no update go to it.
func (p swapSide) Hold(ctx context.Context) error {
	err := p.until(ctx, "has confirmed what there is", func() bool {
		return !p.session.fed() || p.session.full && p.session.cursor.Status().Pending == 0
	})
	if err != nil {
		return err
	}
	return p.hold(ctx)
}

// hold lets no update go to it until Release.
func (p swapSide) hold(ctx context.Context) error {
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if !s.fed() {
		return nil
	}
	if err := s.feed.Hold(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = s.feed
	return nil
}

// Release lets updates go to it again.
func (p swapSide) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
}

// TryActive is SetRole for Active, unless another process has the writer's lock: that is no error.
func (p swapSide) TryActive(ctx context.Context) error {
	p.mu.Lock()
	p.want = sdk.Active
	p.mu.Unlock()
	release, err := p.acquireRole(ctx)
	if err != nil {
		return err
	}
	defer release()
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s == nil {
		return errNoProcess
	}
	if err = p.noteBusy(s, s.remote.SetRole(ctx, sdk.Active)); err == nil {
		p.hasBecome(s, sdk.Active)
	} else if errors.As(err, new(*sdk.Busy)) {
		err = nil
	}
	return err
}

// Reinstate starts its process again, of the binary and with the options that it had, and has it be Active.
func (p swapSide) Reinstate() {
	p.mu.Lock()
	p.want = sdk.Active
	p.mu.Unlock()
	p.process.reinstate()
}

// SetRole is for its process, and for those after it. One that is to serve must have a
// process; one that is to leave gets its role when it has one.
func (p swapSide) SetRole(ctx context.Context, role sdk.Role) error {
	p.mu.Lock()
	p.want = role
	p.mu.Unlock()
	if role == sdk.Active {
		if err := p.until(ctx, "has a process", func() bool { return p.session != nil }); err != nil {
			return err
		}
	}
	release, err := p.acquireRole(ctx)
	if err != nil {
		return err
	}
	defer release()
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if s == nil {
		return nil
	}
	return p.become(ctx, s, role)
}

// Verify compares what the kernel serves with what it was sent, while no update is
// under way and once it has confirmed everything.
func (p swapSide) Verify(ctx context.Context) (bool, error) {
	if err := p.Filled(ctx); err != nil {
		return false, err
	}
	if err := p.hold(ctx); err != nil {
		return false, err
	}
	defer p.Release()
	p.mu.Lock()
	s := p.session
	p.mu.Unlock()
	if !s.fed() {
		return false, errNoProcess
	}
	confirmed := s.cursor.Confirmed()
	if n := s.cursor.Wanted(); len(confirmed) == 0 && n > 0 {
		return false, fmt.Errorf("it has confirmed nothing, and %s are to be served", phrase.Count(n, "Service port"))
	}
	v := swap.Expect(confirmed)
	err := s.remote.Inspect(ctx, func(s sdk.Served) error { v.Saw(s); return nil })
	if errors.Is(err, wire.ErrUnsupported) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("inspect: %w", err)
	}
	if err := v.Differences(); err != nil {
		return true, fmt.Errorf("%w; try: pointsman-conformance --run C07 %s", err, p.status().Path)
	}
	return true, nil
}

// ReadyInStandby reports whether it has all but the ways in already in Standby. One that can
// only listen where the frontends are cannot, while another one does.
func (p swapSide) ReadyInStandby() bool {
	d := p.status().Description
	return !diesWithProcess(d) || !slices.Contains(d.Limits, sdk.LimitOwnAddressesOnly)
}

// ExportAffinity lists which clients keep which endpoints; none if the plugin cannot say.
func (p swapSide) ExportAffinity(ctx context.Context) ([]sdk.AffinityEntry, error) {
	remote := p.remote()
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
func (p swapSide) ImportAffinity(ctx context.Context, entries []sdk.AffinityEntry) error {
	remote := p.remote()
	if remote == nil {
		return errNoProcess
	}
	if err := remote.ImportAffinity(ctx, entries); !errors.Is(err, wire.ErrUnsupported) {
		return err
	}
	return nil
}

// Progress returns how far its process has come, as it reported with its last heartbeat.
func (p swapSide) Progress() uint64 { return p.status().Vitals.Progress }

// Flows returns what is left of those it has begun. Of a process that is still to come into
// session they are not known: a host before may have left it, with flows. Nor are they of
// one that does not have its role yet: it counts them while it drains.
func (p swapSide) Flows(ctx context.Context) (int, error) {
	p.mu.Lock()
	s, has := p.session, p.session.is(p.want)
	p.mu.Unlock()
	switch {
	case s != nil && !has:
		return 0, errNoRole
	case s != nil:
		vitals, err := s.remote.Vitals(ctx)
		return vitals.Flows, err
	case p.status().Coming():
		return 0, errComing
	}
	return 0, nil
}

var (
	errComing = errors.New("its process is not in session yet")
	errNoRole = errors.New("its process does not have its role yet")
)

// Stop ends a launched process. A plugin at an address goes on and releases the writer's lock. Rules in the kernel stay.
func (p swapSide) Stop() {
	if remote := p.remote(); remote != nil && p.process.plugin.Address != "" {
		ctx, cancel := context.WithTimeout(context.Background(), yieldLimit)
		defer cancel()
		if err := remote.SetRole(ctx, sdk.Yielded); err != nil {
			p.log.Info("the plugin keeps the writer's lock for a minute", "plugin", p.name, "err", err)
		}
	}
	p.process.stop()
}

const yieldLimit = 2 * time.Second

// Cleanup removes it from the node. It is sent nothing more, or it would come
// back; and what its process cannot do, another one of its binary does. Of a plugin that
// runs by itself that is the next one in session, when Cleanup is called again. Where
// another process is the writer of its mode it only ends: the rules are that one's.
func (p swapSide) Cleanup(ctx context.Context) error {
	p.mu.Lock()
	p.clearing = true
	p.mu.Unlock()
	defer p.Release()
	plugin := p.process.plugin
	err := p.clear(ctx)
	if busy := (*sdk.Busy)(nil); errors.As(err, &busy) {
		p.log.Info("the rules of this mode are left to the process that writes them", "plugin", p.name, "holder", busy.Error())
		p.Stop()
		return nil
	}
	if err != nil && plugin.Address != "" {
		return fmt.Errorf("%s at %s did not clean up after itself: %w; if it stays so, run there: pointsman-dataplane-%s cleanup", p.name, plugin.Address, err, p.name)
	}
	p.Stop()
	if err == nil {
		return nil
	}
	if !errors.Is(err, errNoProcess) {
		p.log.Warn("cleanup by its own process", "plugin", p.name, "err", err)
	}
	_, err = verb(ctx, plugin.Path, plugin.SHA256, "cleanup")
	return err
}

// clear has its process clean up after itself, and after those before it. No update
// swaps to it any more.
func (p swapSide) clear(ctx context.Context) error {
	remote := p.remote()
	if remote == nil {
		return errNoProcess
	}
	if err := p.hold(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, busyFor) // the tools of a process before may have the lock for a moment
	defer cancel()
	return unlessBusy(limited, func() error {
		_, err := remote.Cleanup(ctx, sdk.Leftovers{})
		return err
	})
}
