// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

func addrs(text string) []netip.Addr {
	var all []netip.Addr
	for _, a := range strings.Fields(text) {
		all = append(all, netip.MustParseAddr(a))
	}
	return all
}

func TestWant(t *testing.T) {
	sctp := svc("web", "cluster-ip 10.0.0.1:80", "10.1.0.1:80")
	sctp.Name.Protocol = sdk.SCTP
	odd := svc("web", "cluster-ip 10.0.0.1:80", "10.1.0.1:80")
	odd.Frontends[0].Policy = 99
	for _, c := range []struct {
		name      string
		svc       sdk.Service
		nodePorts string
		want      string
	}{
		{"its own address", svc("web", "cluster-ip 10.0.0.1:80, external-ip 192.0.2.9:80", "10.1.0.1:80"), "",
			"tcp 10.0.0.1:80, tcp 192.0.2.9:80"},
		{"over UDP", udp(svc("dns", "cluster-ip 10.0.0.1:53", "10.1.0.1:53")), "", "udp 10.0.0.1:53"},
		{"a node port at each address of its family", svc("web", "node-port 0.0.0.0:30080", "10.1.0.1:80"), "127.0.0.1 192.0.2.1 ::1",
			"tcp 127.0.0.1:30080, tcp 192.0.2.1:30080"},
		{"likewise in IPv6", svc("web", "node-port [::]:30080", "[fd00::1]:80"), "127.0.0.1 ::1", "tcp [::1]:30080"},
		{"a node port where no address takes any", svc("web", "node-port 0.0.0.0:30080", "10.1.0.1:80"), "", ""},
		{"no endpoint: a claim without a socket", svc("web", "cluster-ip 10.0.0.1:80", ""), "", "tcp 10.0.0.1:80 (no socket)"},
		{"no SCTP", sctp, "", "refused: name.protocol"},
		{"no value of a later version", odd, "", "refused: service"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, err := want(c.svc, addrs(c.nodePorts))
			if got := wantText(d, err); got != c.want {
				t.Errorf("want %q, got %q", c.want, got)
			}
		})
	}
}

func wantText(d *desired, err error) string {
	var refusal *sdk.Refusal
	if errors.As(err, &refusal) {
		return "refused: " + refusal.Field
	}
	var words []string
	for _, c := range d.claims {
		words = append(words, c.place.String())
		if !c.listens {
			words[len(words)-1] += " (no socket)"
		}
	}
	return strings.Join(words, ", ")
}

// TestPlan shows how sockets change with Services.
func TestPlan(t *testing.T) {
	web := svc("web", "cluster-ip 10.0.0.1:80", "10.1.0.1:80")
	port := svc("port", "node-port 0.0.0.0:30080", "10.1.0.2:80")
	exact := svc("exact", "load-balancer 192.0.2.1:30080", "10.1.0.3:80")
	empty := func(s sdk.Service) sdk.Service { s.Cluster = nil; return s }
	as := func(name string, s sdk.Service) sdk.Service { s.Name.Service = name; return s }
	local := func(s sdk.Service) sdk.Service {
		s.Frontends = slices.Clone(s.Frontends)
		s.Frontends[0].Policy = sdk.Local
		return s
	}
	for _, c := range []struct {
		name     string
		from, to []sdk.Service
		want     string
	}{
		{"a new Service", nil, []sdk.Service{web}, `
open tcp 10.0.0.1:80 for ns1/web/tcp4
give tcp 10.0.0.1:80 to ns1/web/tcp4 as cluster-ip 10.0.0.1:80`},
		{"nothing changes", []sdk.Service{web}, []sdk.Service{web}, ``},
		{"deleted", []sdk.Service{web}, nil, `
close tcp 10.0.0.1:80`},
		{"an address moves: the socket stays open", []sdk.Service{web}, []sdk.Service{as("other", web)}, `
give tcp 10.0.0.1:80 to ns1/other/tcp4 as cluster-ip 10.0.0.1:80`},
		{"an address moves to a Service without an endpoint", []sdk.Service{web}, []sdk.Service{empty(as("other", web))}, `
close tcp 10.0.0.1:80`},
		{"and back", []sdk.Service{empty(as("other", web))}, []sdk.Service{web}, `
open tcp 10.0.0.1:80 for ns1/web/tcp4
give tcp 10.0.0.1:80 to ns1/web/tcp4 as cluster-ip 10.0.0.1:80`},
		{"another policy on the same socket", []sdk.Service{web}, []sdk.Service{local(web)}, `
give tcp 10.0.0.1:80 to ns1/web/tcp4 as cluster-ip 10.0.0.1:80 local`},
		{"the last endpoint goes: the kernel refuses callers", []sdk.Service{web}, []sdk.Service{empty(web)}, `
close tcp 10.0.0.1:80`},
		{"a frontend with the address takes the place from a node port", []sdk.Service{port}, []sdk.Service{port, exact}, `
give tcp 192.0.2.1:30080 to ns1/exact/tcp4 as load-balancer 192.0.2.1:30080`},
		{"also if it has no endpoint", []sdk.Service{port}, []sdk.Service{port, empty(exact)}, `
close tcp 192.0.2.1:30080`},
		{"and the node port gets it back", []sdk.Service{port, exact}, []sdk.Service{port}, `
give tcp 192.0.2.1:30080 to ns1/port/tcp4 as node-port *:30080`},
		{"all at once: open, then give, then close", []sdk.Service{web, port}, []sdk.Service{as("other", port), exact}, `
give tcp 127.0.0.1:30080 to ns1/other/tcp4 as node-port *:30080
give tcp 192.0.2.1:30080 to ns1/exact/tcp4 as load-balancer 192.0.2.1:30080
close tcp 10.0.0.1:80`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := planText(t, c.from, c.to); strings.TrimSpace(got) != strings.TrimSpace(c.want) {
				t.Errorf("want\n%s\ngot\n%s", c.want, got)
			}
		})
	}
}

// planText serves from, and then returns what is done to serve to.
func planText(t *testing.T, from, to []sdk.Service) string {
	t.Helper()
	var done []string
	s := newSockets(&process{relay: relay.New(), vips: newVIPs(nil, ""), log: slog.New(slog.DiscardHandler), step: func() {}}, sdk.IPv4)
	s.listen = func(_ context.Context, c *claim) (relay.Socket, error) {
		done = append(done, "open "+c.place.String()+" for "+c.name.String())
		return &fakeSocket{place: c.place, done: &done}, nil
	}
	s.reset()
	for _, services := range [][]sdk.Service{from, to} {
		done = nil
		pieces := make(map[sdk.Name]*desired)
		for name := range s.Desired() {
			pieces[name] = nil
		}
		for _, svc := range services {
			d, err := s.want(svc, addrs("127.0.0.1 192.0.2.1"))
			if err != nil {
				t.Fatal(err)
			}
			pieces[svc.Name] = d
		}
		s.SetDesired(pieces)
		if failed, err := s.apply(t.Context(), s.claims.Plan()); err != nil || len(failed) > 0 {
			t.Fatal(failed, err)
		}
		s.finish()
	}
	order := func(line string) int { return strings.Index("open give close", line[:4]) }
	if !slices.IsSortedFunc(done, func(a, b string) int { return cmp.Compare(order(a), order(b)) }) {
		t.Errorf("a socket was closed before another one was opened: %q", done)
	}
	slices.SortFunc(done, func(a, b string) int { return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a, b)) })
	return strings.Join(done, "\n")
}

// A fakeSocket records calls in done.
type fakeSocket struct {
	relay.Socket
	place  place
	done   *[]string
	target *relay.Target
}

func (s *fakeSocket) Target() *relay.Target { return s.target }
func (s *fakeSocket) Drain() bool           { return false }
func (s *fakeSocket) Close()                { *s.done = append(*s.done, "close "+s.place.String()) }

func (s *fakeSocket) Serve(to *relay.Target) {
	s.target = to
	*s.done = append(*s.done, "give "+s.place.String()+" to "+to.Service.Name().String()+" as "+to.Frontend.String())
}
