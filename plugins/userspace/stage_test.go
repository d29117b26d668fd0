// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/relaytest"
)

// Short names of helpers.
var (
	at          = relaytest.Addr
	svc         = relaytest.Service
	udp         = relaytest.UDP
	endpoint    = relaytest.Endpoint
	echo        = relaytest.Echo
	dial        = relaytest.Dial
	ask         = relaytest.Ask
	finds       = relaytest.Finds
	eventually  = relaytest.Eventually
	udpEndpoint = relaytest.UDPEndpoint
	udpClient   = relaytest.UDPClient
	askUDP      = relaytest.AskUDP
	descriptors = relaytest.Descriptors

	needsLoopback = relaytest.NeedsLoopback
)

// timeout is the time that a test waits for an event.
const timeout = relaytest.Timeout

// A stage is a plugin with a session. It uses addresses of 127.0.0.0/8 that no other test process uses.
type stage struct {
	*testing.T
	*plugin
	rev uint64
}

// onStage returns an active plugin without rules that serves services.
func onStage(t *testing.T, services ...sdk.Service) *stage {
	t.Helper()
	needsLoopback(t)
	s := &stage{T: t, plugin: newPlugin(t.TempDir())}
	t.Cleanup(func() { s.Close() })
	s.configure("1m")
	s.must(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: services})
	s.role(sdk.Active)
	return s
}

// configure begins a session without rules.
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

// offer sends the next update.
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

// must sends the next update, and fails if a Service fails.
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

// do calls f while no call and no monitor runs.
func (s *stage) do(f func() error) {
	s.Helper()
	if err := s.Beside(s.Context(), f); err != nil {
		s.Fatal(err)
	}
}

// readNow makes the monitor read the machine's addresses and open failed sockets in its next round.
func (s *stage) readNow() {
	s.Helper()
	s.do(func() error {
		for _, f := range s.way.families {
			f.core().readAt = time.Time{}
		}
		return nil
	})
}

// socket returns the socket at p, or nil.
func (s *stage) socket(p place) (found relay.Socket) {
	s.Helper()
	s.do(func() error {
		for _, f := range s.way.families {
			if socket := f.core().open[p]; socket != nil {
				found = socket
			}
		}
		return nil
	})
	return found
}

// Cleanup is the method of plugin, not of testing.T.
func (s *stage) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	return s.plugin.Cleanup(ctx, l)
}

// Context is the method of testing.T.
func (s *stage) Context() context.Context { return s.T.Context() }

// servedLines returns what Inspect reports, one line per frontend.
func (s *stage) servedLines() []string {
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
