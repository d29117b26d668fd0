// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"net"
	"net/netip"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// dialTimeouts are how long each endpoint that is tried may take to accept; where there
// is only one it has all of that time. After them the client is reset.
var dialTimeouts = [...]time.Duration{250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}

// keepAlive finds out in two minutes that one end is gone without a word, so that the
// other is not held for ever.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// attempts are the endpoints that are tried for one connection: first the one that its
// client is to have, and others in turn while that does not accept.
type attempts struct {
	server *server
	from   sdk.Caller
	tried  []netip.AddrPort
}

// next returns the endpoint to try now, and how long it may take. It is false if there
// is none for this client.
func (a *attempts) next() (ep netip.AddrPort, timeout time.Duration, ok bool) {
	r := a.server.relay
	target := a.server.target.Load()
	if target == nil {
		return ep, 0, false // the socket is open, and serves nothing yet
	}
	if len(a.tried) == len(dialTimeouts) {
		r.counters.unanswered.Add(1)
		return ep, 0, false
	}
	ep, verdict := r.choose(target, a.from, a.tried)
	if verdict != sdk.Forward {
		return ep, 0, false
	}
	timeout = dialTimeouts[len(a.tried)]
	a.tried = append(a.tried, ep)
	return ep, timeout, true
}

// last is the endpoint that next returned.
func (a *attempts) last() netip.AddrPort { return a.tried[len(a.tried)-1] }

// failed counts that ep, which next returned, did not accept.
func (a *attempts) failed(ep netip.AddrPort, err error) {
	r := a.server.relay
	r.counters.dialErrors.Add(1)
	r.log.Load().Debug("endpoint does not accept", "at", "tcp "+a.server.at.String(), "endpoint", ep, "err", err)
}
