// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestStandbyOnlyLooks: it leaves no socket, and takes a Service whose address is
// in use: that may be by the process that it is to succeed.
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

// TestYielded takes no update until it has a role again.
func TestYielded(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := onStage(t)
	s.role(sdk.Yielded)
	if _, err := s.Sync(t.Context(), sdk.Update{From: 1, To: 2}); !errors.As(err, new(*sdk.Busy)) {
		t.Errorf("an update: %v", err)
	}
	s.role(sdk.Active)
	s.set(svc("web", "cluster-ip "+front, back))
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
// begin no flow, once what waited in the socket is forwarded.
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
		if name := tells(t, u, "x"); name != back {
			t.Errorf("%s an established flow finds %s", when, name)
		}
		if n := s.Report().Flows; n < 2 {
			t.Errorf("%s %d flows are reported", when, n)
		}
	}
	lives("at first")
	for _, r := range []sdk.Role{sdk.Draining, sdk.Standby, sdk.Active} {
		s.role(r)
		eventually(t, func() error {
			before := s.Report().Flows
			_, _ = caller(t, front).Write([]byte("x"))
			lives(r.String()) // the socket reads this datagram after the new one
			if s.Report().Flows > before && r != sdk.Active {
				return fmt.Errorf("%s begins a flow", r)
			}
			return nil
		})
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
