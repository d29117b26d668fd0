// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

func sourceRange(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// TestInUse: a Service whose address another program has keeps what it had, the
// others of its update go in, and so does it once the program has gone.
func TestInUse(t *testing.T) {
	a, b, taken := at(1, 8000), at(4, 8000), at(5, 8000)
	back := at(2, 8000)
	speaker(t, back, nil)
	other, err := net.Listen("tcp", taken)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := onStage(t, svc("web", "cluster-ip "+a, back))
	moved := svc("web", "cluster-ip "+b+", external-ip "+taken, back)
	failed := s.offer(sdk.Update{Set: []sdk.Service{moved, svc("more", "cluster-ip "+at(6, 8000), back)}}).Failed
	if len(failed) != 1 || failed[0].Name != moved.Name || !strings.Contains(failed[0].Err.Error(), taken) {
		t.Fatalf("failed: %v", failed)
	}
	if refusal := new(sdk.Refusal); errors.As(failed[0].Err, &refusal) {
		t.Errorf("it says that trying again will not help: %v", refusal)
	}
	finds(t, a, back)
	finds(t, at(6, 8000), back)
	if _, err := ask(b); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("half of the Service was served: %v", err)
	}
	other.Close()
	s.set(moved)
	finds(t, b, back)
	finds(t, taken, back)
	if _, err := ask(a); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("what it had is still served: %v", err)
	}
}

// TestNotOurs: an address that no interface has is refused with what to type, in
// Standby already.
func TestNotOurs(t *testing.T) {
	s := onStage(t)
	for _, role := range []sdk.Role{sdk.Active, sdk.Standby} {
		s.role(role)
		for _, service := range []sdk.Service{
			svc("web", "cluster-ip 203.0.113.9:8000", at(2, 8000)), udp(svc("dns", "cluster-ip 203.0.113.9:5300", at(2, 8000))),
		} {
			failed := s.offer(sdk.Update{Set: []sdk.Service{service}}).Failed
			var refusal *sdk.Refusal
			if len(failed) != 1 || !errors.As(failed[0].Err, &refusal) {
				t.Fatalf("%s, %s: failed: %v", role, service.Name, failed)
			}
			if refusal.Field != "frontends" || refusal.Try != "ip address add 203.0.113.9/32 dev lo" {
				t.Errorf("%#v", refusal)
			}
		}
	}
}

// TestNotAllowed: a low port without the right to it.
func TestNotAllowed(t *testing.T) {
	if os.Getuid() == 0 {
		err := explain(place{sdk.TCP, addrPortOf(at(1, 80))}, syscall.EACCES)
		var refusal *sdk.Refusal
		if !errors.As(err, &refusal) || !strings.Contains(refusal.Try, "ip_unprivileged_port_start=80") {
			t.Errorf("%#v", err)
		}
		t.Skip("root may listen on every port; only the words were tested")
	}
	s := onStage(t)
	failed := s.offer(sdk.Update{Set: []sdk.Service{svc("web", "cluster-ip "+at(1, 80), at(2, 8000))}}).Failed
	var refusal *sdk.Refusal
	if len(failed) != 1 || !errors.As(failed[0].Err, &refusal) || !strings.Contains(refusal.Try, "ip_unprivileged_port_start=80") {
		t.Fatalf("failed: %v", failed)
	}
}

// TestFailedGivesWay: one that could not move keeps its old address only while
// nobody else is given it.
func TestFailedGivesWay(t *testing.T) {
	front, back, rival := at(1, 8000), at(2, 8000), at(3, 8000)
	speaker(t, back, nil)
	speaker(t, rival, nil)
	s := onStage(t, svc("a", "cluster-ip "+front, back))
	away := svc("a", "cluster-ip 203.0.113.9:8000", back)
	b := svc("b", "cluster-ip "+front, rival)
	if failed := s.offer(sdk.Update{Set: []sdk.Service{away, b}}).Failed; len(failed) != 1 {
		t.Fatalf("failed: %v", failed)
	}
	finds(t, front, rival)
	s.must(sdk.Update{Delete: []sdk.Name{b.Name}})
	finds(t, front, back)
}

// soon is finds, of what the monitor has to notice first.
func soon(t *testing.T, addr, endpoint string) {
	t.Helper()
	eventually(t, func() error {
		who, err := ask(addr)
		if err == nil && who != endpoint {
			err = fmt.Errorf("%s is served by %s", addr, who)
		}
		return err
	})
}

// TestNodePorts stand at each address that takes them, give way to a Service that
// names the address, and follow the machine's addresses.
func TestNodePorts(t *testing.T) {
	needsLoopback(t)
	one, two := addrPortOf(at(1, 30080)), addrPortOf(at(2, 30080))
	back, exact := at(3, 8000), at(4, 8000)
	speaker(t, back, nil)
	speaker(t, exact, nil)
	first := address{prefix: netip.PrefixFrom(one.Addr(), 8)}
	second := address{prefix: netip.PrefixFrom(two.Addr(), 8)}
	foreign := address{prefix: netip.PrefixFrom(addrPortOf(back).Addr(), 8), foreign: true}
	var own atomic.Pointer[[]address]
	own.Store(&[]address{first, foreign})
	s := &stage{T: t, plugin: newPlugin(t.TempDir())}
	t.Cleanup(func() { s.Close() })
	s.addresses = func() ([]address, error) { return *own.Load(), nil }
	s.configure("1m")
	has := func(all ...address) {
		own.Store(&all)
		s.hurry()
	}
	node := &sdk.Node{Name: "n1", NodePorts: []netip.Prefix{sourceRange("127.0.0.0/8")}}
	port := svc("port", "node-port 0.0.0.0:30080", back)
	s.must(sdk.Update{Full: true, Node: node, Set: []sdk.Service{port}})
	s.role(sdk.Active)
	finds(t, one.String(), back)
	refused := func(addr netip.AddrPort) {
		t.Helper()
		eventually(t, func() error {
			if _, err := ask(addr.String()); !errors.Is(err, syscall.ECONNREFUSED) {
				return fmt.Errorf("%s is served: %v", addr, err)
			}
			return nil
		})
	}
	refused(two)
	refused(netip.AddrPortFrom(addrPortOf(back).Addr(), 30080))

	has(first, foreign, second)
	soon(t, two.String(), back)
	finds(t, one.String(), back)

	lb := svc("lb", "load-balancer "+two.String(), exact)
	s.set(lb)
	finds(t, one.String(), back)
	finds(t, two.String(), exact)
	s.must(sdk.Update{Delete: []sdk.Name{lb.Name}})
	finds(t, two.String(), back)

	has(foreign, second)
	refused(one)
	finds(t, two.String(), back)
	node.NodePorts = nil
	s.must(sdk.Update{Node: node})
	refused(two)
	if got := s.told(); len(got) != 1 {
		t.Errorf("told: %v", got)
	}
}

// TestOwed: what is taken when the relay becomes active is served as soon as it
// is free.
func TestOwed(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := onStage(t)
	s.role(sdk.Standby)
	s.set(svc("web", "cluster-ip "+front, back), svc("more", "cluster-ip "+at(6, 8000), back))
	other, err := net.Listen("tcp", front)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s.role(sdk.Active)
	finds(t, at(6, 8000), back)
	if got := s.told(); len(got) != 1 || !strings.Contains(got[0], "ns1/more") {
		t.Errorf("served: %v", got)
	}
	other.Close()
	s.hurry()
	soon(t, front, back)
}

// TestStandbyOnlyLooks: it leaves no socket, and takes a Service whose address is
// in use: that may be by whom it is to succeed.
func TestStandbyOnlyLooks(t *testing.T) {
	front, back, taken := at(1, 8000), at(2, 8000), at(5, 8000)
	speaker(t, back, nil)
	first := onStage(t, svc("web", "cluster-ip "+taken, at(3, 8000)))
	s := onStage(t)
	s.role(sdk.Standby)
	s.set(svc("web", "cluster-ip "+front, back), svc("taken", "cluster-ip "+taken, back))
	if _, err := ask(front); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("standby answers: %v", err)
	}
	first.role(sdk.Draining)
	s.role(sdk.Active)
	finds(t, front, back)
	finds(t, taken, back)
}

// TestYielded plans and writes nothing.
func TestYielded(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := onStage(t)
	s.role(sdk.Yielded)
	r := s.offer(sdk.Update{Set: []sdk.Service{svc("web", "cluster-ip "+front, back)}})
	if len(r.Steps) != 2 || !strings.HasPrefix(r.Steps[0], "open tcp "+front) {
		t.Errorf("steps: %q", r.Steps)
	}
	s.role(sdk.Active)
	finds(t, front, back)
}

// TestCleanupNames what it ends.
func TestCleanupNames(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, echo)
	s := onStage(t, svc("web", "cluster-ip "+front, back))
	c := dial(t, front)
	_, _ = c.Write([]byte("x"))
	_, _ = c.Read(make([]byte, 1))
	want := []string{"socket tcp " + front + " of ns1/web/tcp4", "1 established connections"}
	for _, dry := range []bool{true, false} {
		if got, err := s.Cleanup(t.Context(), sdk.Leftovers{DryRun: dry}); err != nil || !slices.Equal(got, want) {
			t.Errorf("dry run %v: %q, %v", dry, got, err)
		}
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection goes on")
	}
	if got, err := s.Cleanup(t.Context(), sdk.Leftovers{}); err != nil || len(got) > 0 {
		t.Errorf("again: %q, %v", got, err)
	}
	s.configure("1m")
	s.must(sdk.Update{Full: true, Set: []sdk.Service{svc("web", "cluster-ip "+front, back)}})
	s.role(sdk.Active)
	dial(t, front)
}

// TestGetsOn has what only computes report progress too: with many Services, on a busy
// node, it takes longer than a call may stand still.
func TestGetsOn(t *testing.T) {
	s := onStage(t)
	with := func(back string) []sdk.Service {
		return []sdk.Service{svc("a", "cluster-ip "+at(1, 8000), back), svc("b", "cluster-ip "+at(1, 8001), back)}
	}
	s.offer(sdk.Update{Set: with(at(2, 8000))})
	before := s.Report().Progress
	s.offer(sdk.Update{Set: with(at(3, 8000))}) // there is nothing to open
	if steps := s.Report().Progress - before; steps < 6 {
		t.Errorf("2 Services are %d steps", steps)
	}
}

// TestNobodyServes: there is no socket, so callers are refused, over UDP too.
func TestNobodyServes(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := onStage(t, svc("web", "load-balancer "+front, back), udp(svc("dns", "load-balancer "+front, back)))
	c := caller(t, front)
	s.set(svc("web", "load-balancer "+front, ""), udp(svc("dns", "load-balancer "+front, "")))
	if _, err := ask(front); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("over TCP: %v", err)
	}
	eventually(t, func() error {
		_, err := c.Write([]byte("x"))
		if errors.Is(err, syscall.ECONNREFUSED) {
			return nil
		}
		return fmt.Errorf("over UDP the caller sees %v", err)
	})
	s.set(svc("web", "load-balancer "+front, back))
	finds(t, front, back)
}

// TestSwitch: an address goes to and fro between two Services. The socket stays,
// and not one caller is turned away.
func TestSwitch(t *testing.T) {
	front := at(1, 8000)
	a, b := at(2, 8000), at(3, 8000)
	speaker(t, a, nil)
	speaker(t, b, nil)
	services := []sdk.Service{svc("a", "cluster-ip "+front, a), svc("b", "cluster-ip "+front, b)}
	s := onStage(t, services[0])
	socket := s.socket(place{sdk.TCP, addrPortOf(front)})
	var stop atomic.Bool
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for !stop.Load() {
				if _, err := ask(front); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 50 {
		was, next := services[i%2], services[1-i%2]
		s.must(sdk.Update{Delete: []sdk.Name{was.Name}, Set: []sdk.Service{next}})
		finds(t, front, next.Cluster[0].Addr.String())
	}
	stop.Store(true)
	callers.Wait()
	if s.socket(place{sdk.TCP, addrPortOf(front)}) != socket {
		t.Error("the socket was opened anew")
	}
}

// TestRolesEndNothing: what is established lives through every role. Draining and standby
// begin no flow.
func TestRolesEndNothing(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, echo)
	teller(t, back)
	s := onStage(t, svc("web", "cluster-ip "+front, back), udp(svc("dns", "cluster-ip "+front, back)))
	c, u := dial(t, front), caller(t, front)
	lives := func(when string) {
		t.Helper()
		fmt.Fprint(c, "x")
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		if who := tells(t, u, "x"); who != back {
			t.Errorf("%s an established flow finds %s", when, who)
		}
		if n := s.Report().Flows; n != 2 {
			t.Errorf("%s %d flows are reported", when, n)
		}
	}
	lives("at first")
	for _, r := range []sdk.Role{sdk.Draining, sdk.Standby, sdk.Active} {
		s.role(r)
		if r != sdk.Active {
			_, _ = caller(t, front).Write([]byte("x"))
		}
		lives(r.String())
	}
	s.role(sdk.Yielded) // a successor shares the port: UDP is all its
	fmt.Fprint(c, "x")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatalf("yielded: %v", err)
	}
	c.Close()
	eventually(t, func() error {
		if n := s.Report().Flows; n != 0 {
			return fmt.Errorf("%d flows are reported after the end", n)
		}
		return nil
	})
}

// TestServiceComesBack: a Service that is removed and comes back while its socket still has
// flows is served as it is now, and not as it was.
func TestServiceComesBack(t *testing.T) {
	front, first, second := at(1, 8000), at(2, 8000), at(3, 8000)
	teller(t, first)
	teller(t, second)
	dns := udp(svc("dns", "cluster-ip "+front, first))
	s := onStage(t, dns)
	if found := tells(t, caller(t, front), "x"); found != first {
		t.Fatalf("at first a flow finds %s", found)
	}
	s.must(sdk.Update{Delete: []sdk.Name{dns.Name}})
	s.set(udp(svc("dns", "cluster-ip "+front, second)))
	if found := tells(t, caller(t, front), "x"); found != second {
		t.Errorf("after it came back a new flow finds %s, want %s", found, second)
	}
}
