// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A process in Standby opens no socket. It accepts a Service at an address in use, because it may replace the process there.
func TestStandbyOpensNoSocket(t *testing.T) {
	front, back, taken := at(1, 8000), at(2, 8000), at(5, 8000)
	endpoint(t, back, nil)
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

// Cleanup describes what it closes.
func TestCleanupDescribes(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, echo)
	s := onStage(t, svc("web", "cluster-ip "+front, back))
	c := dial(t, front)
	_, _ = c.Write([]byte("x"))
	_, _ = c.Read(make([]byte, 1))
	want := []string{"sockets: 1", "connections and UDP flows: 1"}
	for _, dry := range []bool{true, false} {
		if got, err := s.Cleanup(t.Context(), sdk.Leftovers{DryRun: dry}); err != nil || !slices.Equal(got, want) {
			t.Errorf("dry run %v: %q, %v", dry, got, err)
		}
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection was not closed")
	}
	if got, err := s.Cleanup(t.Context(), sdk.Leftovers{}); err != nil || len(got) > 0 {
		t.Errorf("again: %q, %v", got, err)
	}
	s.configure("1m")
	s.must(sdk.Update{Full: true, Set: []sdk.Service{svc("web", "cluster-ip "+front, back)}})
	s.role(sdk.Active)
	dial(t, front)
}

// In Draining a UDP flow continues. A process that has yielded ends its flows, because its successor shares the port.
func TestFlowsInRoles(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	udpEndpoint(t, back)
	s := onStage(t, udp(svc("dns", "cluster-ip "+front, back)))
	u := udpClient(t, front)
	askUDP(t, u, "x")
	for _, c := range []struct {
		role  sdk.Role
		flows int
	}{{sdk.Draining, 1}, {sdk.Standby, 1}, {sdk.Active, 1}, {sdk.Yielded, 0}} {
		s.role(c.role)
		if n := s.Report().Flows; n != c.flows {
			t.Errorf("%s: %d flows, want %d", c.role, n, c.flows)
		}
		if c.flows > 0 && askUDP(t, u, "x") != back {
			t.Errorf("%s: the flow has another endpoint", c.role)
		}
	}
}

// A client keeps its endpoint in a successor, which imports that before it has the Service.
func TestAffinityMoves(t *testing.T) {
	front, endpoints := at(1, 8000), ""
	for n := range 9 { // many, so that another one would be found without affinity
		endpoint(t, at(2+n, 8000), nil)
		endpoints += " " + at(2+n, 8000)
	}
	web := svc("web", "cluster-ip "+front, endpoints)
	web.Affinity = time.Hour
	from, to := onStage(t, web), onStage(t)
	kept, err := ask(front)
	var all []sdk.AffinityEntry
	exported := from.ExportAffinity(t.Context(), func(e sdk.AffinityEntry) error { all = append(all, e); return nil })
	if err := errors.Join(err, exported, to.ImportAffinity(t.Context(), all)); err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	from.role(sdk.Draining)
	to.set(web)
	finds(t, front, kept)
}
