// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/userspace/relay/relaytest"
	"github.com/pointsman/pointsman/sdk"
)

// The words in which tests speak.
var (
	at          = relaytest.Addr
	svc         = relaytest.Service
	udp         = relaytest.UDP
	speaker     = relaytest.Endpoint
	echo        = relaytest.Echo
	dial        = relaytest.Dial
	ask         = relaytest.Ask
	finds       = relaytest.Finds
	eventually  = relaytest.Eventually
	teller      = relaytest.UDPEndpoint
	caller      = relaytest.UDPClient
	tells       = relaytest.AskUDP
	descriptors = relaytest.Descriptors

	needsLoopback = relaytest.NeedsLoopback
)

// patience is how long a test waits for what must come.
const patience = relaytest.Timeout

// A stage is an active relay with its session, on addresses of 127.0.0.0/8 that
// this process has for itself.
type stage struct {
	*testing.T
	*Dataplane
	rev uint64
}

// onStage is a stage on which the relay serves services.
func onStage(t *testing.T, services ...sdk.Service) *stage {
	t.Helper()
	return raise(t, New(t.TempDir()), services)
}

func raise(t *testing.T, d *Dataplane, services []sdk.Service) *stage {
	t.Helper()
	needsLoopback(t)
	s := &stage{T: t, Dataplane: d}
	t.Cleanup(func() { s.Close() })
	s.configure("1m")
	s.must(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: services})
	s.role(sdk.Active)
	return s
}

// configure begins a session without rules, in which UDP flows may be idle for so
// long.
func (s *stage) configure(idle string) {
	s.Helper()
	s.rev = 0
	options := fmt.Appendf(nil, `{"redirect": "never", "udpIdleTimeout": %q}`, idle)
	if _, err := s.Configure(s.Context(), sdk.Setup{Options: options}); err != nil {
		s.Fatal(err)
	}
}

func (s *stage) role(r sdk.Role) {
	s.Helper()
	if err := s.SetRole(s.T.Context(), r); err != nil {
		s.Fatal(err)
	}
}

// offer sends u as the next update.
func (s *stage) offer(u sdk.Update) sdk.Result {
	s.Helper()
	u.From, u.To = s.rev, s.rev+1
	if u.Full {
		u.From = 0
	}
	for i := range u.Set {
		u.Set[i].Normalize()
	}
	r, err := s.Sync(s.T.Context(), u)
	if err != nil {
		s.Fatalf("sync: %v", err)
	}
	s.rev = u.To
	return r
}

// must is offer, of what must go in whole.
func (s *stage) must(u sdk.Update) {
	s.Helper()
	if r := s.offer(u); len(r.Failed) > 0 {
		s.Fatalf("failed: %s: %v", r.Failed[0].Name, r.Failed[0].Err)
	}
}

func (s *stage) set(services ...sdk.Service) {
	s.Helper()
	s.must(sdk.Update{Set: services})
}

// Context is the test's.
func (s *stage) Context() context.Context { return s.T.Context() }

// told is what Inspect tells, a frontend a line.
func (s *stage) told() []string {
	s.Helper()
	var lines []string
	err := s.Inspect(s.Context(), func(v sdk.Served) error {
		lines = append(lines, fmt.Sprintf("%s %s = %v", v.Name, v.Frontend, v.Endpoints))
		return nil
	})
	if err != nil {
		s.Fatal(err)
	}
	return lines
}

func addrPortOf(text string) netip.AddrPort { return netip.MustParseAddrPort(text) }
