// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/traffic"
)

// endpointsToLeave has two endpoints in each family, and one client that calls both.
const endpointsToLeave = `
-- services --
ns1/web PROTO
  cluster-ip 172.30.0.41:80
  cluster-ip [fd00:172:30::41]:80
  endpoint   10.180.1.1:8080
  endpoint   10.180.1.2:8080
  endpoint   [fd00:10:180:1::1]:8080
  endpoint   [fd00:10:180:1::2]:8080
-- packets --
10.180.0.9     > 172.30.0.41:80 PROTO       = 10.180.1.1:8080 10.180.1.2:8080
fd00:10:180::9 > [fd00:172:30::41]:80 PROTO = [fd00:10:180:1::1]:8080 [fd00:10:180:1::2]:8080
`

// without returns the scenario after the endpoint gone was removed from its Services and from the expected results of
// its packets.
func without(s sdktest.Scenario, gone netip.AddrPort) sdktest.Scenario {
	s.Services, s.Packets = slices.Clone(s.Services), slices.Clone(s.Packets)
	for i, svc := range s.Services {
		s.Services[i].Cluster = slices.DeleteFunc(slices.Clone(svc.Cluster), func(ep sdk.Endpoint) bool { return ep.Addr == gone })
	}
	for i, p := range s.Packets {
		s.Packets[i].Want.Endpoints = slices.DeleteFunc(slices.Clone(p.Want.Endpoints), func(e netip.AddrPort) bool { return e == gone })
	}
	return s
}

// drained returns the line of ipvsadm for an endpoint that gets no new connections.
func drained(dest netip.AddrPort) string { return fmt.Sprintf("-r %s -m -w 0", dest) }

func (s *fixture) shows(text string) bool {
	s.Helper()
	return strings.Contains(strings.Join(s.services(), "\n"), text)
}

// A client keeps its connection to a removed endpoint, also when the process restarts and when the endpoint is added
// again. No new client is sent to the endpoint. When its last connection has ended, the endpoint is removed.
func TestKernelIPVSDrainsLiveConnections(t *testing.T) {
	s := newFixture(t, "")
	served := s.serve(strings.ReplaceAll(endpointsToLeave, "PROTO", "tcp"))
	fewer := served
	callers := make(map[*net.TCPConn]netip.AddrPort)
	for _, p := range served.Packets {
		caller := s.connect(p)
		callers[caller] = s.endpointOf(caller)
		fewer = without(fewer, callers[caller])
	}
	s.sync(sdk.Update{Set: fewer.Services})
	check := func(when string) {
		t.Helper()
		for caller, leaves := range callers {
			if _, err := caller.Write([]byte("who\n")); err != nil {
				t.Errorf("%s: a client that was connected cannot send: %v", when, err)
			}
			if now := s.endpointOf(caller); now != leaves {
				t.Errorf("%s: a client that was connected to %s is answered by %s", when, leaves, now)
			}
			if !s.shows(drained(leaves)) {
				t.Errorf("%s: %q is not in\n%s", when, drained(leaves), strings.Join(s.services(), "\n"))
			}
		}
		for _, others := range fewer.Packets {
			for range 4 {
				s.packet(others)
			}
		}
	}
	check("while it is drained")
	s.restart()
	s.sync(fewer.Update(1))
	s.role(sdk.Active)
	check("after a restart")
	s.sync(sdk.Update{Set: served.Services})
	if s.shows("-w 0") {
		t.Errorf("after the endpoints were added again, the kernel has\n%s", strings.Join(s.services(), "\n"))
	}
	s.sync(sdk.Update{Set: fewer.Services})
	check("when they leave again")
	for caller := range callers {
		if err := errors.Join(caller.SetLinger(0), caller.Close()); err != nil { // otherwise the kernel keeps the connection for minutes
			t.Fatal(err)
		}
	}
	s.until("the drained endpoints are removed", func() bool {
		s.reap()
		return !s.shows("-w 0")
	})
}

// connect opens a connection from the packet's client to its destination.
func (s *fixture) connect(p sdktest.Packet) *net.TCPConn {
	s.Helper()
	host, err := s.node.Host(p.From.Addr)
	if err != nil {
		s.Fatal(err)
	}
	conn, err := host.Dial(s.Context(), "tcp", p.From.Addr, p.To)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// endpointOf returns the endpoint that answers on a connection.
func (s *fixture) endpointOf(conn net.Conn) netip.AddrPort {
	s.Helper()
	conn.SetReadDeadline(time.Now().Add(traffic.Timeout))
	buf := make([]byte, 256)
	n, err := conn.Read(buf)
	if err != nil {
		s.Fatal(err)
	}
	word, _, _ := strings.Cut(string(buf[:n]), " ")
	return addrPort(word)
}
