// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file contains the operations on one dataplane that steps use.

// pollInterval is how often until checks its condition without a notification. Few conditions change with time alone.
const pollInterval = time.Second / 4

// until waits until ok returns true. It calls ok with the mutex held.
func (p *dataplane) until(ctx context.Context, what string, ok func() bool) error {
	for {
		changed := p.changes.wait()
		p.mu.Lock()
		done, failure := ok(), p.followed.Error
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s %s: %w", p.name, what, errors.Join(ctx.Err(), p.trouble(failure)))
		case <-changed:
		case <-time.After(pollInterval):
		}
	}
}

// trouble returns the known problem of the dataplane, or nil.
func (p *dataplane) trouble(failure string) error {
	if why := p.shownStatus().Why; why != "" {
		return errors.New(why)
	}
	if failure != "" {
		return errors.New(failure)
	}
	return nil
}

// filled reports whether it has confirmed the whole state. The caller holds the mutex.
func (p *dataplane) filled() bool { return p.session.filled() }

// caughtUp reports whether it has confirmed all updates, or gets none. The caller holds the
// mutex.
func (p *dataplane) caughtUp() bool {
	return !p.session.hasFeed() || p.session.full && p.session.cursor.Status().Pending == 0
}

// Hold waits until it has confirmed all updates, and then holds back further ones until
// Release.
func (p *dataplane) Hold(ctx context.Context) error {
	err := p.until(ctx, "has confirmed all updates", p.caughtUp)
	if err != nil {
		return err
	}
	return p.hold(ctx)
}

// hold holds back updates until Release.
func (p *dataplane) hold(ctx context.Context) error {
	s := p.current()
	if !s.hasFeed() {
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

// Release ends a Hold.
func (p *dataplane) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held != nil {
		p.held.Release()
		p.held = nil
	}
}

// setRole sets the role of its process. It waits for the writer's lock if the role needs it.
func (p *dataplane) setRole(ctx context.Context, role sdk.Role) error {
	s := p.current()
	if s == nil {
		return errNoProcess
	}
	return p.setSessionRole(ctx, s, role)
}

// retire is like setRole, but succeeds if the process is away. The process gets the role when it is back.
func (p *dataplane) retire(ctx context.Context, role sdk.Role) error {
	if err := p.setRole(ctx, role); p.remote() != nil {
		return err
	}
	return nil
}

// tryActive makes its process Active, and returns nil also if another process holds the
// writer's lock.
func (p *dataplane) tryActive(ctx context.Context) error {
	s := p.current()
	if s == nil {
		return errNoProcess
	}
	err := p.noteBusy(s, s.remote.SetRole(ctx, sdk.Active))
	if err == nil {
		p.recordRole(s, sdk.Active)
	} else if errors.As(err, new(*sdk.Busy)) {
		err = nil
	}
	return err
}

// verify compares what the kernel serves with what it was sent, while updates are held back and
// once the whole state is confirmed. It returns false if the plugin cannot say what it serves.
func (p *dataplane) verify(ctx context.Context) (bool, error) {
	if err := p.until(ctx, "has confirmed the whole state", p.filled); err != nil {
		return false, err
	}
	if err := p.hold(ctx); err != nil {
		return false, err
	}
	defer p.Release()
	s := p.current()
	if !s.hasFeed() {
		return false, errNoProcess
	}
	confirmed := s.cursor.Confirmed()
	if n := s.cursor.Wanted(); len(confirmed) == 0 && n > 0 {
		return false, fmt.Errorf("it has confirmed none of %s", phrase.Count(n, "Service port"))
	}
	found, err := p.inspect(ctx, everyName)
	switch {
	case errors.Is(err, wire.ErrUnsupported):
		return false, nil
	case err != nil:
		return false, err
	}
	if err := differences(confirmed, found); err != nil {
		return true, fmt.Errorf("%w; try: pointsman-conformance --run C07 %s", err, p.plugin.Where())
	}
	return true, nil
}

// readyInStandby reports whether it prepares everything but the entry points while in Standby.
// A dataplane that only listens on the frontends' own addresses cannot, while another one
// listens there.
func (p *dataplane) readyInStandby() bool {
	d := p.description()
	return !diesWithProcess(d) || !slices.Contains(d.Limits, sdk.LimitOwnAddressesOnly)
}

// vitals asks its process for a report.
func (p *dataplane) vitals(ctx context.Context) (wire.Vitals, error) {
	remote := p.remote()
	if remote == nil {
		return wire.Vitals{}, errNoProcess
	}
	return remote.Vitals(ctx)
}

// Stop ends a launched process. A plugin at an address keeps running and releases the writer's
// lock. Rules in the kernel stay.
func (p *dataplane) Stop() {
	if remote := p.remote(); remote != nil && p.plugin.Address != "" {
		ctx, cancel := context.WithTimeout(context.Background(), yieldLimit)
		defer cancel()
		if err := remote.SetRole(ctx, sdk.Yielded); err != nil {
			p.host.Log.Info("writer's lock not released", "plugin", p.name, "err", err)
		}
	}
	if !p.stop(errNotNeeded) {
		p.setState(Stopped, errNotNeeded.Error())
	}
}

const yieldLimit = 2 * time.Second

// Cleanup removes its rules from the node. It stops updates first, or the rules would come
// back. If its process cannot clean up, another process of its binary does. If another process
// is the writer of its mode, the rules belong to that process and Cleanup only ends its own.
func (p *dataplane) Cleanup(ctx context.Context) error {
	p.mu.Lock()
	p.clearing = true
	p.mu.Unlock()
	defer p.Release()
	plugin := p.plugin
	if plugin.Address != "" && p.isOver() {
		if err := p.open(ctx, 0, p.currentOptions()); err != nil {
			p.lost(err, 0)
			return err
		}
	}
	err := p.clear(ctx)
	if busy := (*sdk.Busy)(nil); errors.As(err, &busy) {
		p.host.Log.Info("rules left to another writer", "plugin", p.name, "holder", busy.Error())
		p.Stop()
		return nil
	}
	if err != nil && plugin.Address != "" {
		return fmt.Errorf("clean up %s at %s: %w; if this persists, run there: pointsman-dataplane-%s cleanup", p.name, plugin.Address, err, p.name)
	}
	p.Stop()
	if err == nil {
		return nil
	}
	if !errors.Is(err, errNoProcess) {
		p.host.Log.Warn("cleanup by the running process failed", "plugin", p.name, "err", err)
	}
	_, err = verb(ctx, plugin.Path, plugin.SHA256, "cleanup")
	return err
}

// clear asks its process to clean up what it and earlier processes left, and holds back updates
// from then on.
func (p *dataplane) clear(ctx context.Context) error {
	remote := p.remote()
	if remote == nil {
		return errNoProcess
	}
	if err := p.hold(ctx); err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, busyFor) // tools that an ended process started may hold the lock for a moment
	defer cancel()
	return retryWhileBusy(limited, func() error {
		_, err := remote.Cleanup(ctx, sdk.Leftovers{})
		return err
	})
}
