// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/traffic"
)

// These tests send real packets for different configurations of the node.

// A load balancer's health check is accepted even if INPUT drops almost everything, also if the check is sent to the
// Service's own address, as some load balancers do. A port that is no longer a health-check port of the Service is not
// accepted.
func TestKernelIPVSHealthPort(t *testing.T) {
	s := newFixture(t, "")
	served := s.serve(strings.Replace(loadBalancer, "  node-port ", "  health-port 32100\n  node-port ", 1))
	for _, port := range []int{32100, 32101} {
		l, err := net.Listen("tcp", fmt.Sprintf(":%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
	}
	for _, program := range []string{"iptables-legacy", "ip6tables-legacy"} {
		run(t, "sh", "-ec", program+" -A INPUT -p ipv6-icmp -j ACCEPT; "+program+" -A INPUT -i lo -j ACCEPT; "+program+" -P INPUT DROP")
		defer run(t, "sh", "-ec", program+" -P INPUT ACCEPT; "+program+" -D INPUT -i lo -j ACCEPT; "+program+" -D INPUT -p ipv6-icmp -j ACCEPT")
	}
	const in, dropped, refused = "let in", "dropped", "refused"
	for _, asked := range []bool{true, false} {
		for _, c := range []struct{ from, to, when, otherwise string }{
			{"192.0.2.7", "192.0.2.10:32100", in, dropped},
			{"192.0.2.7", "192.0.2.10:32101", dropped, dropped},
			{"192.0.2.7", "198.51.100.1:32100", in, refused},
			{"192.0.2.7", "198.51.100.1:32101", refused, refused},
			{"2001:db8::7", "[2001:db8::10]:32100", in, dropped},
			{"2001:db8::7", "[2001:db8:51::1]:32100", in, refused},
			{"2001:db8::7", "[2001:db8:51::1]:32101", refused, refused},
		} {
			want := map[bool]string{true: c.when, false: c.otherwise}[asked]
			if got := s.reaches(c.from, c.to, want == dropped); got != want {
				t.Errorf("with health-check port: %v: a connection from %s to %s was %s, want %s", asked, c.from, c.to, got, want)
			}
		}
		var without []sdk.Service
		for _, svc := range served.Services {
			svc.HealthPort = 0
			without = append(without, svc)
		}
		s.sync(sdk.Update{Set: without})
	}
}

// reaches dials a listener on the node and returns what happens to the connection: "let in", "refused" or "dropped".
// With silence it waits only a short time for an answer.
func (s *fixture) reaches(from, to string, silence bool) string {
	s.Helper()
	addr := netip.MustParseAddr(from)
	h, err := s.node.Host(addr)
	if err != nil {
		s.Fatal(err)
	}
	wait := traffic.Timeout
	if silence {
		wait = time.Second
	}
	ctx, cancel := context.WithTimeout(s.Context(), wait)
	defer cancel()
	conn, err := h.Dial(ctx, "tcp", addr, addrPort(to))
	switch {
	case err == nil:
		conn.Close()
		return "let in"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "dropped"
	}
	return err.Error()
}

// IPv6 Services are served even if IPv6 is disabled for new devices.
func TestKernelIPVSNewDevicesHaveNoIPv6(t *testing.T) {
	s := newFixture(t, "")
	served := s.scenario(loadBalancer)
	const off = "/proc/sys/net/ipv6/conf/default/disable_ipv6"
	if err := os.WriteFile(off, []byte("1"), 0); err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(off, []byte("0"), 0)
	s.sync(served.Update(1))
	s.role(sdk.Active)
	s.packets(served)
}
