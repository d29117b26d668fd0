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

// A host is what both families of a session share: one IPVS, one list of addresses, one
// connection tracking. The frame's semaphore guards it.
type host struct {
	plugin  *plugin
	kernel  kernel
	options options
	env     frame.Env
	sysctls sdk.Sysctls
	sides   []*side

	mu       sync.Mutex // guards the kernel and what follows while families adopt, which they do at once
	adopting int        // families
	shared   sights     // what was read last; nothing, while no family adopts

	writer    bool
	wake      chan struct{} // has the frame probe at once
	end       chan struct{} // of listening; nil: nobody does
	heard     map[sdk.Family]heard
	untracked int // connections that a change of mode would end
}

// Sights are what is read of both families at once.
type sights struct {
	began   time.Time
	read    parts
	servers map[server]virtual
	sets    map[sdk.Family]setsOf
	addrs   addresses
}

// look reads what both families share. Each list is of both, so that a reading which began
// since a family began to adopt is as good as one of its own.
func (h *host) look(ctx context.Context, which parts, since time.Time) (sights, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.shared.began.After(since) && h.shared.read&which == which {
		return h.shared, nil
	}
	v, err := sights{began: time.Now(), read: which}, error(nil)
	if which.has(inServers) {
		if v.servers, err = h.kernel.Servers(); err != nil {
			return v, err
		}
	}
	if which.has(inSets) {
		if v.sets, err = h.kernel.Sets(ctx); err != nil {
			return v, err
		}
	}
	if which.has(inAddrs) {
		if v.addrs, err = h.kernel.Addrs(); err != nil {
			return v, err
		}
	}
	h.shared = v
	return v, nil
}

// adopts notes that n more families adopt, or fewer. What the last one has read is too large
// to be kept.
func (h *host) adopts(n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.adopting += n; h.adopting == 0 {
		h.shared = sights{}
	}
}

// hold hands the lock, or none, to whatever writes for both families, and listens while
// there is one.
func (h *host) hold(lock *ledger.Lock) {
	h.kernel.hold(lock)
	h.writer = lock != nil
	switch {
	case lock != nil && h.end == nil:
		h.end = make(chan struct{})
		go pass(h.kernel.Listen(), h.wake, h.end) // ends with end
	case lock == nil && h.end != nil:
		close(h.end)
		h.end = nil
		h.kernel.Hush()
	}
}

// pass says on wake that there are news, until end.
func pass(news <-chan struct{}, wake chan<- struct{}, end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		case <-news:
		}
		select {
		case wake <- struct{}{}:
		default: // that was said already
		}
	}
}

// take is what was heard of the node's addresses since it was last asked for a family.
func (h *host) take(of sdk.Family) heard {
	now := h.kernel.Heard()
	for _, s := range h.sides {
		f := s.book.ground.family
		all := h.heard[f]
		all.missed = all.missed || now.missed
		all.others, all.lost = append(all.others, now.others...), append(all.lost, now.lost...)
		h.heard[f] = all
	}
	mine := h.heard[of]
	delete(h.heard, of)
	return mine
}

// prepare is what IPVS itself is told of the node, before any Service, with the first family.
func (h *host) prepare(s *side) error {
	if !h.writer || s != h.sides[0] {
		return nil
	}
	if err := h.seeUntracked(); err != nil {
		return err
	}
	if t := h.options.timeouts(); t != (timeouts{}) {
		return h.kernel.SetTimeouts(t)
	}
	return nil
}
