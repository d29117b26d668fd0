// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// A lab is a machine of which no interface has 127.0.0.0/8, so that addresses have to be added;
// sockets can stand there all the same.
type lab struct {
	*testing.T
	fakeInterfaces
	dir string
}

func newLab(t *testing.T) *lab {
	needsLoopback(t)
	return &lab{T: t, dir: t.TempDir()}
}

// own are the addresses of the machine.
func (l *lab) own() ([]address, error) {
	var all []address
	for addr := range l.Has() {
		all = append(all, address{prefix: netip.PrefixFrom(addr, addr.BitLen())})
	}
	slices.SortFunc(all, func(a, b address) int { return a.prefix.Addr().Compare(b.prefix.Addr()) })
	return append(all, address{prefix: netip.MustParsePrefix("127.0.0.1/32")}), nil
}

// raise is a process that adds addresses, and is active with these Services.
func (l *lab) raise(services ...sdk.Service) *stage {
	l.Helper()
	s := &stage{T: l.T, plugin: newPluginOn(&l.fakeInterfaces, l.own, l.dir)}
	l.Cleanup(func() { s.Close() })
	if _, err := s.Configure(l.Context(), sdk.Setup{Options: []byte(`{"redirect": "never", "addresses": "auto"}`)}); err != nil {
		l.Fatal(err)
	}
	s.must(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: services})
	s.role(sdk.Active)
	return s
}

// has holds the interface to these addresses.
func (l *lab) has(addrs ...string) {
	l.Helper()
	var want, got []string
	for _, a := range addrs {
		want = append(want, addrPortOf(a).Addr().String())
	}
	for addr := range l.Has() {
		got = append(got, addr.String())
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		l.Errorf("the interface has %q, want %q", got, want)
	}
}

// TestAddresses: an address is there before its Service can be reached, and until it is gone.
func TestAddresses(t *testing.T) {
	l := newLab(t)
	front, more, back := at(1, 8000), at(3, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := l.raise(svc("web", "cluster-ip "+front, back), svc("idle", "cluster-ip "+at(4, 8000), ""))
	finds(t, front, back)
	l.has(front, at(4, 8000)) // where no socket is, the kernel rejects clients
	s.set(svc("web", "cluster-ip "+front+", external-ip "+more, back), svc("twin", "cluster-ip "+at(1, 8001), back))
	finds(t, more, back)
	l.has(front, more, at(4, 8000))
	s.must(sdk.Update{Delete: []sdk.Name{svc("web", "cluster-ip "+front, back).Name}})
	l.has(front, at(4, 8000)) // the twin has it
	want := []string{"socket tcp " + at(1, 8001) + " of ns1/twin/tcp4", `address ` + addrPortOf(front).Addr().String() + ` on "loopback"`, `address ` + addrPortOf(at(4, 1)).Addr().String() + ` on "loopback"`}
	for _, dry := range []bool{true, false} {
		got, err := s.Cleanup(t.Context(), sdk.Leftovers{DryRun: dry})
		got = slices.DeleteFunc(got, func(name string) bool { return strings.HasSuffix(name, "established connections") }) // of finds, which may take a moment to end
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("cleanup, dry run %v: %q, %v; want %q", dry, got, err, want)
		}
	}
	l.has()
}

// TestAddressesTakeNoNodePorts: a node port is not taken at what was added for another Service.
func TestAddressesTakeNoNodePorts(t *testing.T) {
	l := newLab(t)
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := l.raise(svc("web", "cluster-ip "+front, back))
	second := &stage{T: t, plugin: newPluginOn(&l.fakeInterfaces, l.own, l.dir)} // as in a swap
	t.Cleanup(func() { second.Close() })
	for _, p := range []*stage{s, second} {
		own, err := p.addresses()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range own {
			if a.foreign != (a.prefix.Addr() == addrPortOf(front).Addr()) {
				t.Errorf("%v: takes no node ports: %v", a.prefix, a.foreign)
			}
		}
	}
}

// TestAddressesFail: the Service is named with what to do, and the others are served.
func TestAddressesFail(t *testing.T) {
	l := newLab(t)
	front, used, back := at(1, 8000), at(3, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := l.raise(svc("web", "cluster-ip "+front, back))
	l.Elsewhere(addrPortOf(used).Addr())
	r := s.offer(sdk.Update{Set: []sdk.Service{svc("bad", "cluster-ip "+used, back), svc("good", "cluster-ip "+at(4, 8000), back)}})
	if len(r.Failed) != 1 || r.Failed[0].Name.Service != "bad" || !strings.Contains(r.Failed[0].Err.Error(), "another machine on the link has the address") {
		t.Errorf("failed: %v", r.Failed)
	}
	finds(t, at(4, 8000), back)
	l.has(front, at(4, 8000))
	l.Deny(fmt.Errorf("iphlpapi.dll has no such call: %w", errors.ErrUnsupported))
	r = s.offer(sdk.Update{Set: []sdk.Service{svc("more", "cluster-ip "+at(5, 8000), back)}})
	unable := func(r sdk.Result) {
		t.Helper()
		if refusal := new(sdk.Refusal); len(r.Failed) != 1 || !errors.As(r.Failed[0].Err, &refusal) || !strings.Contains(refusal.Try, "addresses to never") {
			t.Errorf("failed: %v", r.Failed)
		}
	}
	unable(r)
	// A successor says so before it serves: a swap would be undone for what it finds out later.
	next := &stage{T: t, plugin: newPluginOn(&l.fakeInterfaces, l.own, l.dir)}
	t.Cleanup(func() { next.Close() })
	if _, err := next.Configure(t.Context(), sdk.Setup{Options: []byte(`{"redirect": "never", "addresses": "auto"}`)}); err != nil {
		t.Fatal(err)
	}
	unable(next.offer(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: []sdk.Service{svc("more", "cluster-ip 192.0.2.5:8000", back)}}))
}

// TestAddressRemovedUnderUs is added again, with sockets that receive there; and where it cannot
// be added, the Service is named between updates, too.
func TestAddressRemovedUnderUs(t *testing.T) {
	l := newLab(t)
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, nil)
	s := l.raise(svc("web", "cluster-ip "+front, back))
	socket := s.socket(place{sdk.TCP, addrPortOf(front)})
	if err := l.Remove(assigned{addr: addrPortOf(front).Addr()}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if len(l.Has()) == 0 || s.Report().Repaired == 0 {
			return errors.New("the address is still missing")
		}
		return nil
	})
	finds(t, front, back)
	if s.socket(place{sdk.TCP, addrPortOf(front)}) == socket {
		t.Error("the socket of before is still there")
	}
	l.Gone(true)
	eventually(t, func() error {
		if notes := s.Report().Notes; len(notes) != 1 || !strings.HasPrefix(notes[0], "ns1/web/tcp4 is not served at "+front) || !strings.Contains(notes[0], "to the loopback interface") {
			return fmt.Errorf("notes: %q", notes)
		}
		return nil
	})
	l.Gone(false)
	eventually(t, func() error {
		if notes := s.Report().Notes; len(notes) > 0 {
			return fmt.Errorf("notes: %q", notes)
		}
		return nil
	})
	finds(t, front, back)
}

// TestAddressesOfAProcessBefore: what it was killed with is adopted, and the rest removed; and
// what another program added stays.
func TestAddressesOfAProcessBefore(t *testing.T) {
	l := newLab(t)
	kept, gone, foreign, back := at(1, 8000), at(3, 8000), at(4, 8000), at(2, 8000)
	speaker(t, back, nil)
	if err := l.Foreign(addrPortOf(foreign).Addr()); err != nil {
		t.Fatal(err)
	}
	s := l.raise(svc("web", "cluster-ip "+kept, back), svc("gone", "cluster-ip "+gone, back), svc("foreign", "cluster-ip "+foreign, back))
	l.has(kept, gone, foreign)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l.has(kept, gone, foreign)
	next := l.raise(svc("web", "cluster-ip "+kept, back))
	l.has(kept, foreign)
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	cleaner := newPluginOn(&l.fakeInterfaces, l.own, l.dir)
	if removed, err := cleaner.Cleanup(t.Context(), sdk.Leftovers{}); err != nil || len(removed) != 1 {
		t.Errorf("by hand it removes %q, %v", removed, err)
	}
	l.has(foreign)
}

// TestSwapLeavesAddresses: the process that a swap leads away from removes nothing that the other
// one serves.
func TestSwapLeavesAddresses(t *testing.T) {
	l := newLab(t)
	front, back := at(1, 8000), at(2, 8000)
	speaker(t, back, nil)
	from := l.raise(svc("web", "cluster-ip "+front, back))
	from.role(sdk.Draining)
	to := l.raise(svc("web", "cluster-ip "+front, back))
	if _, err := from.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Error(err)
	}
	l.has(front)
	finds(t, front, back)
	if _, err := to.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Error(err)
	}
	l.has()
}

// TestStandbyAddsNothing, and says already what could not be added.
func TestStandbyAddsNothing(t *testing.T) {
	l := newLab(t)
	s := l.raise()
	s.role(sdk.Standby)
	s.set(svc("web", "cluster-ip "+at(1, 8000), at(2, 8000)))
	l.has()
}

// TestAddressesElsewhere: a system where none is added says so.
func TestAddressesElsewhere(t *testing.T) {
	if theInterfaces() != nil {
		t.Skip("this system adds addresses")
	}
	_, err := newPlugin(t.TempDir()).Configure(t.Context(), sdk.Setup{Options: []byte(`{"addresses": "auto"}`)})
	if refusal := new(sdk.Refusal); !errors.As(err, &refusal) || refusal.Field != "options.addresses" || !strings.Contains(refusal.Try, "redirect: auto") {
		t.Errorf("%v", err)
	}
}
