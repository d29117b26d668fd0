// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

func sourceRange(text string) netip.Prefix { return netip.MustParsePrefix(text) }

// If another program has an address of a Service, the Service is served as before, and the other Services of the update are
// served as specified. When the program has closed its socket, the Service is, too.
func TestInUse(t *testing.T) {
	a, b, taken := at(1, 8000), at(4, 8000), at(5, 8000)
	back := at(2, 8000)
	endpoint(t, back, nil)
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
		t.Errorf("the error is a refusal, although to try again may help: %v", refusal)
	}
	finds(t, a, back)
	finds(t, at(6, 8000), back)
	if _, err := ask(b); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("one address of the Service is served: %v", err)
	}
	other.Close()
	s.set(moved)
	finds(t, b, back)
	finds(t, taken, back)
	if _, err := ask(a); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("the former address is still served: %v", err)
	}
}

// A Service at an address that no interface has is refused, with the command that adds the address. It is refused in Standby,
// too.
func TestNotLocal(t *testing.T) {
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

// A process without the right to listen on a low port gets an error that says what to do.
func TestNotAllowed(t *testing.T) {
	err := explain(place{sdk.TCP, addrPortOf(at(1, 80))}, syscall.EACCES)
	if refusal := new(sdk.Refusal); !errors.As(err, &refusal) || !strings.Contains(refusal.Try, "ip_unprivileged_port_start=80") {
		t.Errorf("%#v", err)
	}
}

// A Service that cannot move to another address keeps its former one, and the Service that should get that address fails, too.
func TestFailedKeepsItsAddress(t *testing.T) {
	front, back, rival := at(1, 8000), at(2, 8000), at(3, 8000)
	endpoint(t, back, nil)
	endpoint(t, rival, nil)
	s := onStage(t, svc("a", "cluster-ip "+front, back))
	away := svc("a", "cluster-ip 203.0.113.9:8000", back)
	b := svc("b", "cluster-ip "+front, rival)
	if failed := s.offer(sdk.Update{Set: []sdk.Service{away, b}}).Failed; len(failed) != 2 || !strings.Contains(failed[1].Err.Error(), "exchanges frontends with ns1/a") {
		t.Fatalf("failed: %v", failed)
	}
	finds(t, front, back)
	s.set(svc("a", "cluster-ip "+at(4, 8000), back), b)
	finds(t, front, rival)
	finds(t, at(4, 8000), back)
}

// soon waits until an endpoint answers, because the monitor has to notice a change first.
func soon(t *testing.T, addr, endpoint string) {
	t.Helper()
	eventually(t, func() error {
		name, err := ask(addr)
		if err == nil && name != endpoint {
			err = fmt.Errorf("%s is served by %s", addr, name)
		}
		return err
	})
}

// Node ports are served at each address of the machine that takes them, unless a Service has this address and port.
func TestNodePorts(t *testing.T) {
	one, two := addrPortOf(at(1, 30080)), addrPortOf(at(2, 30080))
	back, exact := at(3, 8000), at(4, 8000)
	endpoint(t, back, nil)
	endpoint(t, exact, nil)
	first := address{prefix: netip.PrefixFrom(one.Addr(), 8)}
	second := address{prefix: netip.PrefixFrom(two.Addr(), 8)}
	s := onStage(t)
	has := func(all ...address) {
		s.do(func() error { s.addresses = func() ([]address, error) { return all, nil }; return nil })
		s.readNow()
	}
	has(first)
	node := &sdk.Node{Name: "n1", NodePorts: []netip.Prefix{sourceRange("127.0.0.0/8")}}
	port := svc("port", "node-port 0.0.0.0:30080", back)
	s.must(sdk.Update{Node: node, Set: []sdk.Service{port}})
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

	has(first, second)
	soon(t, two.String(), back)
	finds(t, one.String(), back)

	lb := svc("lb", "load-balancer "+two.String(), exact)
	s.set(lb)
	finds(t, one.String(), back)
	finds(t, two.String(), exact)
	s.must(sdk.Update{Delete: []sdk.Name{lb.Name}})
	finds(t, two.String(), back)

	has(second)
	refused(one)
	finds(t, two.String(), back)
	node.NodePorts = nil
	s.must(sdk.Update{Node: node})
	refused(two)
}

// A refused Service leaves nothing behind of its node port at an address that was just removed: it is served like any other
// when the reason is gone.
func TestRefusedNodePort(t *testing.T) {
	taken, back := addrPortOf(at(1, 30080)), at(2, 8000)
	endpoint(t, back, nil)
	other, err := net.Listen("tcp", taken.String())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s := onStage(t)
	s.do(func() error {
		s.addresses = func() ([]address, error) {
			return []address{{prefix: netip.PrefixFrom(taken.Addr(), 8)}, {prefix: sourceRange("203.0.113.9/32")}}, nil
		}
		return nil
	})
	port := svc("port", "node-port 0.0.0.0:30080", back)
	node := &sdk.Node{Name: "n1", NodePorts: []netip.Prefix{sourceRange("0.0.0.0/0")}}
	if failed := s.offer(sdk.Update{Node: node, Set: []sdk.Service{port}}).Failed; len(failed) != 1 || !strings.Contains(failed[0].Err.Error(), taken.String()) {
		t.Fatalf("failed: %v", failed)
	}
	s.set(svc("web", "cluster-ip "+at(3, 8000), back))
	s.readNow()
	s.role(sdk.Active)
	if notes := s.Report().Notes; len(notes) > 0 {
		t.Errorf("the report has notes about a Service that was refused: %q", notes)
	}
	other.Close()
	s.set(port)
	finds(t, taken.String(), back)
	if notes := s.Report().Notes; len(notes) != 1 || !strings.Contains(notes[0], "203.0.113.9") {
		t.Errorf("the report has the notes %q", notes)
	}
}

// If a place is in use when the plugin becomes Active, it is served as soon as it is free.
func TestPlaceInUseIsServedLater(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, nil)
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
	if got := s.servedLines(); len(got) != 1 || !strings.Contains(got[0], "ns1/more") {
		t.Errorf("served: %v", got)
	}
	other.Close()
	s.readNow()
	soon(t, front, back)
}

// A Service that is deleted and created again while its former socket has flows is served with its new endpoints.
func TestServiceComesBack(t *testing.T) {
	front, first, second := at(1, 8000), at(2, 8000), at(3, 8000)
	udpEndpoint(t, first)
	udpEndpoint(t, second)
	dns := udp(svc("dns", "cluster-ip "+front, first))
	s := onStage(t, dns)
	if found := askUDP(t, udpClient(t, front), "x"); found != first {
		t.Fatalf("at first a flow has the endpoint %s", found)
	}
	s.must(sdk.Update{Delete: []sdk.Name{dns.Name}})
	s.set(udp(svc("dns", "cluster-ip "+front, second)))
	if found := askUDP(t, udpClient(t, front), "x"); found != second {
		t.Errorf("after it was created again a new flow has the endpoint %s, want %s", found, second)
	}
}
