// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/conntrack"
)

// A relay is what becomes of a connection or a datagram once it has reached us,
// by whatever way: how it did is the sockets' business (listen.go).
type relay struct {
	crowd   *crowd
	ground  atomic.Pointer[ground]
	idle    atomic.Int64  // of a UDP flow, in nanoseconds
	mark    atomic.Uint32 // on what goes to endpoints; zero: none
	log     atomic.Pointer[slog.Logger]
	counts  counts
	buffers buffers
	loops   loops
	listen  func(context.Context, place) (listener, error) // for TCP: the best that this system has
}

// counts are of the whole life.
type counts struct {
	progress    atomic.Uint64 // steps done
	connections atomic.Uint64 // TCP connections accepted
	calling     atomic.Int64  // of them, now without an endpoint yet
	open        atomic.Int64  // of them, now with one
	dialErrors  atomic.Uint64
	turnedAway  atomic.Uint64 // connections and datagrams dropped by their route
	unanswered  atomic.Uint64 // connections for which no endpoint answered
	flows       atomic.Int64  // of UDP, now
	flowsBegun  atomic.Uint64
	overflow    atomic.Uint64 // datagrams lost because there were too many flows
	bytesIn     atomic.Uint64 // from callers
	bytesOut    atomic.Uint64 // to callers
	repaired    atomic.Uint64 // how often somebody else's change of rules was undone
	waiting     atomic.Pointer[string]
	leaving     atomic.Pointer[string] // what a change to us would end
	rounds      [2]*conntrack.Rounds   // of forgetting the kernel's UDP flows, by family
}

// wait is for what a program of ours waits, or empty.
func (c *counts) wait() string {
	if what := c.waiting.Load(); what != nil {
		return *what
	}
	return ""
}

// parting is what a change to us would end, or empty.
func (c *counts) parting() string {
	if what := c.leaving.Load(); what != nil {
		return *what
	}
	return ""
}

func newRelay() *relay {
	r := &relay{crowd: newCrowd()}
	for _, f := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		r.counts.rounds[index(f)] = conntrack.NewRounds(f)
	}
	r.listen = r.listenBest
	r.ground.Store(newGround(sdk.Node{}, nil))
	r.idle.Store(int64(defaults.udpIdleTimeout))
	r.log.Store(slog.New(slog.DiscardHandler))
	return r
}

// A target is whose a socket is: what comes in on it is for this frontend.
type target struct {
	service  *service
	frontend sdk.Frontend
}

func (t *target) holder() holder {
	if t == nil {
		return holder{}
	}
	return holder{t.service.name, t.frontend}
}

// choose asks the Service's route for an endpoint that is not among those tried.
// The verdict is Forward if there is one.
func (r *relay) choose(t *target, from sdk.Caller, tried []netip.AddrPort) (netip.AddrPort, sdk.Verdict) {
	svc := t.service.value.Load()
	route := svc.Route(t.frontend, from, r.ground.Load().node)
	if route.Verdict != sdk.Forward {
		r.counts.turnedAway.Add(1)
		return netip.AddrPort{}, route.Verdict
	}
	return t.service.pick(svc, route.Endpoints, from.Addr, tried, time.Now()), sdk.Forward
}

// dialer connects to endpoints, and gives up after wait if that is not zero.
func (r *relay) dialer(wait time.Duration) net.Dialer {
	return net.Dialer{Timeout: wait, KeepAliveConfig: keepAlive, Control: marked(r.mark.Load())}
}

// sendHome ends everything that runs, and waits for it.
func (r *relay) sendHome() {
	r.crowd.home()
	r.loops.forget()
}
