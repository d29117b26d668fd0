// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// adopt takes the writer's lock, if it can, and reads what runs, unless that is known. Once it is the
// writer, what a former process left behind listens no more.
func (p *plugin) adopt(ctx context.Context) error {
	p.status.step()
	if err := p.tryLock(); err != nil {
		return err
	}
	return p.look(ctx)
}

// look reads what runs, unless that is known.
func (p *plugin) look(ctx context.Context) error {
	if p.known && p.current != nil && p.current.ended() {
		p.known = false
	}
	if p.known {
		return nil
	}
	number, err := p.store.current()
	if err != nil {
		return err
	}
	p.current, p.have = nil, nil
	if number != 0 {
		i, rec, err := p.store.open(number)
		if err != nil {
			return err
		}
		if !i.ended() {
			if p.have, err = i.live(ctx, rec); err != nil {
				return err
			}
			p.current = i
		}
	}
	p.known = p.lock != nil // else its writer goes on writing
	if p.lock == nil {
		return nil
	}
	return p.retireOthers(ctx, number)
}

// tryLock makes this process the writer, unless another one is, or it has yielded.
func (p *plugin) tryLock() error {
	if p.lock != nil || p.role == sdk.Yielded {
		return nil
	}
	lock, err := p.ledger.TryLock(name)
	if locked, ok := errors.AsType[*ledger.Locked](err); ok {
		if p.status.lock(sdk.LockAwaited, locked.Holder) != sdk.LockAwaited {
			p.awaits = time.Now()
			p.log.Info("another process is the writer: only planning", "holder", locked.Holder.String())
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.lock, p.known = lock, false
	p.status.lock(sdk.LockHeld, sdk.Holder{})
	return nil
}

// retireOthers has every instance but one listen no more: a former process of the plugin was killed
// before it came to that. What is left of those that have ended is removed.
func (p *plugin) retireOthers(ctx context.Context, current int) error {
	numbers, err := p.store.numbers()
	if err != nil {
		return err
	}
	p.draining = nil
	for _, number := range numbers {
		i, _, err := p.store.open(number)
		switch {
		case number == current && p.current != nil:
		case err == nil && !i.ended():
			err = i.retire()
			p.draining = append(p.draining, i)
		default:
			err = i.remove(ctx)
		}
		if err != nil {
			p.log.Warn("an HAProxy of before is left", "number", number, "err", err)
		}
	}
	return nil
}

// follow makes wanted what the state says, for what has changed, and returns what cannot be served.
func (p *plugin) follow(c sdk.Changes) (failed []sdk.Failure) {
	before := p.wanted
	if c.Full {
		if p.current != nil || before == nil {
			before = make(map[sdk.Name]section, len(p.have))
			for n, r := range p.have {
				before[n] = r.section
			}
		}
		p.wanted, p.stale = make(map[sdk.Name]section), make(map[sdk.Name]bool)
		for n := range p.state.Kept {
			p.keep(n, before)
		}
	}
	put := func(n sdk.Name, svc sdk.Service) {
		s, err := want(svc)
		if err == nil {
			err = p.bindable(s)
		}
		if err != nil {
			failed = append(failed, sdk.Failure{Name: n, Err: err})
			p.keep(n, before)
			return
		}
		p.wanted[n] = s
		delete(p.stale, n)
	}
	if c.Full {
		for n, svc := range p.state.Services {
			if !p.state.Kept[n] {
				put(n, svc)
			}
		}
	}
	for _, change := range c.Services {
		switch {
		case c.Full:
		case change.After == nil:
			delete(p.wanted, change.Name)
			delete(p.stale, change.Name)
		default:
			put(change.Name, *change.After)
		}
	}
	settle(p.wanted, p.stale)
	return failed
}

// keep leaves a Service as it was before.
func (p *plugin) keep(n sdk.Name, before map[sdk.Name]section) {
	s, ok := before[n]
	if !ok {
		delete(p.wanted, n)
		return
	}
	p.wanted[n], p.stale[n] = s, true
}

// writeAll writes everything, where what was sent before may not be served.
func (p *plugin) writeAll(ctx context.Context) error {
	failed, err := p.write(ctx, p.all())
	if err == nil {
		p.status.wrote(failed)
	}
	return err
}

// write has HAProxy serve what is wanted, of what is touched, or listen no more.
func (p *plugin) write(ctx context.Context, touched []sdk.Name) ([]sdk.Failure, error) {
	if !p.serves() {
		return nil, p.stop(ctx)
	}
	if p.current == nil || p.current.ended() {
		return p.reload(ctx)
	}
	s := plan(p.have, p.wanted, touched)
	if len(s.reload) > 0 {
		return p.reload(ctx)
	}
	return p.command(ctx, s.commands)
}

// stop has the instance that serves listen no more.
func (p *plugin) stop(ctx context.Context) error {
	if p.current == nil {
		return nil
	}
	if err := p.store.setCurrent(0); err != nil {
		return err
	}
	if err := p.current.quiet(ctx); err != nil && !p.current.ended() {
		p.log.Warn("connections that come now may be reset", "err", err)
	}
	err := p.current.retire()
	p.draining = append(p.draining, p.current)
	p.current, p.have = nil, nil
	return err
}

// command takes steps by the runtime API. Whether it did is read afterwards.
func (p *plugin) command(ctx context.Context, commands map[sdk.Name][]string) (failed []sdk.Failure, err error) {
	if len(commands) == 0 {
		return nil, nil
	}
	p.known = false
	var all, asks []string
	for n, some := range commands {
		all = append(all, some...)
		asks = append(asks, "show servers state "+sectionName(n))
	}
	said, err := p.current.api().ask(ctx, all...)
	if err != nil {
		return nil, err
	}
	answer, err := p.current.api().ask(ctx, asks...)
	if err != nil {
		return nil, err
	}
	servers, err := parseServers(answer)
	if err != nil {
		return nil, err
	}
	for n := range commands {
		now := p.wanted[n].with(servers[sectionName(n)])
		if !slices.Equal(now.Endpoints, p.wanted[n].Endpoints) {
			why := fmt.Errorf("HAProxy has the endpoints %v, and says: %.500q", now.Endpoints, strings.Join(strings.Fields(said), " "))
			failed = append(failed, sdk.Failure{Name: n, Err: why})
		}
		p.have[n] = now
	}
	p.known = true
	return failed, nil
}

// reload has another instance serve what is wanted. Services that HAProxy cannot start stay as they
// were, or are left out.
func (p *plugin) reload(ctx context.Context) (failed []sdk.Failure, err error) {
	const tries = 3
	for range tries {
		err = p.next(ctx)
		unstarted, ok := errors.AsType[*startError](err)
		if !ok {
			return failed, err
		}
		bad := unstarted.of(p.wanted)
		if len(bad) == 0 {
			return failed, err
		}
		before := make(map[sdk.Name]section)
		for n, r := range p.have {
			before[n] = r.section
		}
		for _, f := range bad {
			p.keep(f.Name, before)
		}
		failed = append(failed, bad...)
	}
	return failed, err
}

// next starts the next instance, which inherits the sockets of the one that serves, and retires that.
// Where it does not come so far, the one that serves goes on.
func (p *plugin) next(ctx context.Context) error {
	var descriptors unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &descriptors); err != nil {
		return err
	}
	i, err := p.store.make(helper.Dir(p.setup.StateDir), p.wanted)
	if err != nil {
		return err
	}
	kept, files, err := p.carry(ctx, i)
	if err == nil {
		config := setting{i.socket(), p.threads, limits(descriptors.Max, p.wanted), files}
		err = i.start(ctx, p.program, render(config, p.wanted), p.current, p.status.step)
	}
	if err == nil {
		err = i.remember(ctx, kept, files)
	}
	if err == nil {
		err = p.store.setCurrent(i.number)
	}
	if err != nil {
		return errors.Join(err, p.giveUp(i))
	}
	before := p.current
	p.current, p.known, p.have = i, true, make(map[sdk.Name]running, len(p.wanted))
	for n, s := range p.wanted {
		p.have[n] = running{section: s}
	}
	if before != nil && !before.ended() {
		p.draining = append(p.draining, before)
		return before.retire()
	}
	return nil
}

// giveUp ends an instance that did not come to serve. It may have accepted connections already: it
// ends with the last of them.
func (p *plugin) giveUp(i *instance) error {
	if !i.ended() {
		p.draining = append(p.draining, i)
		return i.retire()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return i.remove(ctx)
}
