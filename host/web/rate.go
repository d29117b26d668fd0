// SPDX-License-Identifier: Apache-2.0

package web

import (
	"net/netip"
	"sync"
	"time"
)

// A rate lets so many through each second, and some more at once after a quiet time. It is safe for
// concurrent use.
type rate struct {
	perSecond, burst float64
	now              func() time.Time

	mu   sync.Mutex // guards what follows
	left float64    // that may come through at the time last
	last time.Time
}

func newRate(perSecond, burst float64, now func() time.Time) *rate {
	return &rate{perSecond: perSecond, burst: burst, now: now, left: burst, last: now()}
}

// allow reports whether one more may come through now.
func (r *rate) allow() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.left = min(r.burst, r.left+r.perSecond*max(0, now.Sub(r.last).Seconds()))
	r.last = now
	if r.left < 1 {
		return false
	}
	r.left--
	return true
}

// mostCallers is for how many addresses a rate is kept at once.
const mostCallers = 1024

// rates is a rate for each address that asks, so that one that asks too often keeps no other from
// asking. It is safe for concurrent use.
type rates struct {
	perSecond, burst float64
	now              func() time.Time

	mu sync.Mutex // guards what follows
	of map[netip.Addr]*rate
}

func newRates(perSecond, burst float64, now func() time.Time) *rates {
	return &rates{perSecond: perSecond, burst: burst, now: now, of: make(map[netip.Addr]*rate)}
}

// allow reports whether one more may come through now, from where remote says: an address and a
// port. What says none is taken for one caller.
func (r *rates) allow(remote string) bool {
	from, _ := netip.ParseAddrPort(remote)
	return r.caller(from.Addr().Unmap()).allow()
}

// caller returns the rate of an address. Where there are many, the one forgotten for it is that
// which has not asked for the longest time.
func (r *rates) caller(addr netip.Addr) *rate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := r.of[addr]; of != nil {
		return of
	}
	if len(r.of) >= mostCallers {
		var oldest netip.Addr
		at := r.now()
		for a, of := range r.of {
			if asked := of.asked(); !asked.After(at) {
				oldest, at = a, asked
			}
		}
		delete(r.of, oldest)
	}
	of := newRate(r.perSecond, r.burst, r.now)
	r.of[addr] = of
	return of
}

// asked is when something was last to come through.
func (r *rate) asked() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}
