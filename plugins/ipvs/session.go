// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A session is what both families share: one IPVS, one list of addresses, one connection
// tracking. The frame's semaphore guards it.
type session struct {
	plugin   *plugin
	kernel   kernel
	options  options
	env      frame.Env
	sysctls  sdk.Sysctls
	families []*family

	mu       sync.Mutex // guards the kernel and what follows while families adopt, which they do at once
	adopting int        // families
	shared   listing    // what was read last; nothing, while no family adopts

	writer    bool
	wake      chan struct{} // has the frame probe at once
	changes   map[sdk.Family]addrChanges
	untracked int // connections that a change of mode would end
}

// A listing is what is read of both families at once.
type listing struct {
	began    time.Time
	read     parts
	services map[serviceKey]observed
	sets     map[sdk.Family]setsOf
	addrs    addresses
}

// take reads the parts that v names.
func (v *listing) take(ctx context.Context, k kernel) (err error) {
	v.began = time.Now()
	if v.read.has(inServices) {
		if v.services, err = k.Services(); err != nil {
			return err
		}
	}
	if v.read.has(inSets) {
		if v.sets, err = k.Sets(ctx); err != nil {
			return err
		}
	}
	if v.read.has(inAddrs) {
		v.addrs, err = k.Addrs()
	}
	return err
}

// look reads what both families share. Each list is of both, so that a reading which began
// since a family began to adopt is as good as one of its own.
func (s *session) look(ctx context.Context, which parts, since time.Time) (listing, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared.began.After(since) && s.shared.read&which == which {
		return s.shared, nil
	}
	v := listing{read: which}
	if err := v.take(ctx, s.kernel); err != nil {
		return v, err
	}
	s.shared = v
	return v, nil
}

// adopts notes that n more families adopt, or fewer. What the last one has read is too large
// to be kept.
func (s *session) adopts(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.adopting += n; s.adopting == 0 {
		s.shared = listing{}
	}
}

// hold hands the lock, or none, to what writes for both families. While there is one, the
// kernel tells of addresses that come and go.
func (s *session) hold(lock *ledger.Lock) {
	s.kernel.hold(lock)
	s.writer = lock != nil
	if s.writer {
		s.kernel.Subscribe(s.wake)
	} else {
		s.kernel.Unsubscribe()
	}
}

// take is how the addresses of a family have changed since this was last called for it.
func (s *session) take(of sdk.Family) addrChanges {
	now := s.kernel.Changes()
	for _, f := range s.families {
		all := s.changes[f.objects.node.family]
		all.missed = all.missed || now.missed
		all.others, all.lost = append(all.others, now.others...), append(all.lost, now.lost...)
		s.changes[f.objects.node.family] = all
	}
	mine := s.changes[of]
	delete(s.changes, of)
	return mine
}

// prepare tells IPVS itself of the node, before any Service, with the first family.
func (s *session) prepare(f *family) error {
	if !s.writer || f != s.families[0] {
		return nil
	}
	if err := s.seeUntracked(); err != nil {
		return err
	}
	if t := s.options.timeouts(); t != (timeouts{}) {
		return s.kernel.SetTimeouts(t)
	}
	return nil
}
