// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// These tests change Services while clients are connected.

// A change of the scheduler or of the affinity breaks no connection, and new clients are served.
func TestKernelIPVSChangesLive(t *testing.T) {
	s := newFixture(t, "")
	served := s.serve(strings.ReplaceAll(endpointsToLeave, "PROTO", "tcp"))
	callers := make(map[*net.TCPConn]netip.AddrPort)
	for _, p := range served.Packets {
		caller := s.connect(p)
		callers[caller] = s.endpointOf(caller)
	}
	for _, c := range []struct {
		scheduler, shown string
		affinity         time.Duration
	}{
		{"mh", "-s mh -b", 0},
		{"mh", "-s mh -p 60", time.Minute},
		{"dh", "-s dh -p 61", 61 * time.Second},
		{"sh", "-s sh -b", 0},
		{"rr", "-s rr -p 3600", time.Hour},
		{"rr", "-s rr\n", 0},
	} {
		changed := served.Services
		for i := range changed {
			changed[i].Affinity = c.affinity
		}
		s.options = fmt.Sprintf(`{"scheduler":%q}`, c.scheduler)
		s.restart()
		s.sync(served.Update(0))
		s.role(sdk.Active)
		if !s.shows(c.shown) {
			t.Errorf("%q is not in\n%s", c.shown, strings.Join(s.services(), "\n"))
		}
		for caller, was := range callers {
			if _, err := caller.Write([]byte("who\n")); err != nil {
				t.Fatal(err)
			}
			if now := s.endpointOf(caller); now != was {
				t.Errorf("%s: a client that was connected to %s is answered by %s", c.shown, was, now)
			}
		}
		for _, p := range served.Packets {
			first := s.packet(p)
			for range 2 {
				if a := s.packet(p); c.affinity > 0 && a.Endpoint != first.Endpoint {
					t.Errorf("%s: a client of %s is sent to %s", c.shown, first.Endpoint, a.Endpoint)
				}
			}
		}
	}
}

// A client with affinity whose endpoint is removed is sent to another endpoint, and stays there when the first one is
// added again.
func TestKernelIPVSAffinityMovesToAnotherEndpoint(t *testing.T) {
	s := newFixture(t, "")
	for _, protocol := range []string{"tcp", "udp", "sctp"} {
		served := s.serve(strings.Replace(strings.ReplaceAll(endpointsToLeave, "PROTO", protocol), "  cluster-ip", "  affinity   10m\n  cluster-ip", 1))
		fewer := served
		for _, p := range served.Packets {
			first := s.packet(p)
			if a := s.packet(p); a.Endpoint != first.Endpoint {
				t.Errorf("%s: a client of %s is sent to %s", protocol, first.Endpoint, a.Endpoint)
			}
			fewer = without(fewer, first.Endpoint)
		}
		s.sync(sdk.Update{Set: fewer.Services})
		for range 3 {
			for _, p := range fewer.Packets {
				s.packet(p)
			}
		}
		s.sync(sdk.Update{Set: served.Services})
		for range 3 {
			for i, p := range served.Packets {
				if a := s.packet(p); a.Endpoint != fewer.Packets[i].Want.Endpoints[0] {
					t.Errorf("%s: after its first endpoint was added again, a client moved from its second endpoint to %s", protocol, a.Endpoint)
				}
			}
		}
	}
}

// In all protocols, node ports are served at exactly the addresses that the node has at the time.
func TestKernelIPVSFollowsAddresses(t *testing.T) {
	s := newFixture(t, "")
	both := func(protocol string) string {
		return strings.ReplaceAll("ns1/web PROTO\n  node-port 30080\n  endpoint 10.180.1.1:8080\n  endpoint [fd00:10:180:1::1]:8080\n", "PROTO", protocol)
	}
	served := s.serve("-- services --\n" + both("tcp") + both("udp") + both("sctp") + `
-- packets --
192.0.2.7   > node:30080      = 10.180.1.1:8080 masq
2001:db8::7 > node:30080      = [fd00:10:180:1::1]:8080 masq
192.0.2.7   > node:30080 udp  = 10.180.1.1:8080 masq
2001:db8::7 > node:30080 udp  = [fd00:10:180:1::1]:8080 masq
192.0.2.7   > node:30080 sctp = 10.180.1.1:8080 masq
2001:db8::7 > node:30080 sctp = [fd00:10:180:1::1]:8080 masq
`)
	s.packets(served)
	had := len(s.services())
	run(t, "ip", "address", "add", "192.0.2.77/32", "dev", "lo")
	run(t, "ip", "address", "add", "2001:db8::77/128", "dev", "lo")
	s.until("the new addresses have node ports", func() bool { return len(s.services()) == 2*had })
	for _, p := range served.Packets {
		at := netip.MustParseAddr("192.0.2.77")
		if p.To.Addr().Is6() {
			at = netip.MustParseAddr("2001:db8::77")
		}
		p.To = netip.AddrPortFrom(at, p.To.Port())
		s.packet(p)
	}
	run(t, "ip", "address", "delete", "192.0.2.77/32", "dev", "lo")
	run(t, "ip", "address", "delete", "2001:db8::77/128", "dev", "lo")
	s.until("addresses that are gone have no node ports", func() bool { return len(s.services()) == had })
	s.packets(served)
}

// A client that sends UDP datagrams to a Service without endpoints, and continues from the same port, is served as soon
// as there is an endpoint. Its datagrams are masqueraded if they have to be.
func TestKernelIPVSEarlyDatagrams(t *testing.T) {
	s := newFixture(t, "")
	served := s.serve(`
-- services --
ns1/dns udp
  cluster-ip 172.30.0.41:80
  cluster-ip [fd00:172:30::41]:80
  node-port  30080
  endpoint   10.180.1.1:8080
  endpoint   [fd00:10:180:1::1]:8080
-- packets --
10.180.0.9     > 172.30.0.41:80 udp       = 10.180.1.1:8080
192.0.2.7      > node:30080 udp           = 10.180.1.1:8080 masq
2001:db8::7    > [fd00:172:30::41]:80 udp = [fd00:10:180:1::1]:8080 masq
`)
	for _, before := range []string{"it has no endpoint", "there is no such Service"} {
		u := sdk.Update{}
		for _, svc := range served.Services {
			if before == "it has no endpoint" {
				svc.Cluster = nil
				u.Set = append(u.Set, svc)
			} else {
				u.Delete = append(u.Delete, svc.Name)
			}
		}
		s.sync(u)
		for _, p := range served.Packets {
			early := p
			early.Want.Unserved = true // do not wait for an answer
			flow, err := s.stage.Dial(t.Context(), early)
			if err != nil {
				t.Fatal(err)
			}
			defer flow.Close()
			if a, err := flow.Ask(t.Context()); a.Verdict == sdk.Forward {
				t.Errorf("%s: %s got %s, %v", before, p.Text, a, err)
			}
			s.sync(sdk.Update{Set: served.Services})
			s.until(before+", then with an endpoint: "+p.Text, func() bool {
				a, err := flow.Ask(t.Context())
				return err == nil && a.Verdict == sdk.Forward && (a.Client != p.From.Addr) == p.Want.Masquerades(a.Endpoint)
			})
			s.sync(u)
		}
		s.sync(sdk.Update{Set: served.Services})
	}
}
