// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// vip is an address of a Service.
func vip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}) }

// A shelf is fake interfaces, and the folder of notes that its processes share.
type shelf struct {
	*testing.T
	fakeInterfaces
	dir string
}

func newShelf(t *testing.T) *shelf { return &shelf{T: t, dir: t.TempDir() + "/addresses"} }

// process is another one, which ends with the test.
func (m *shelf) process() *holding {
	h := newHolding(&m.fakeInterfaces, m.dir)
	m.Cleanup(func() { _ = h.letGo() })
	return h
}

func (m *shelf) ensure(h *holding, addrs ...netip.Addr) map[netip.Addr]error {
	m.Helper()
	failed, err := h.ensure(m.Context(), "", addrs, func() {})
	if err != nil {
		m.Fatal(err)
	}
	return failed
}

// must is ensure of what can be had.
func (m *shelf) must(h *holding, addrs ...netip.Addr) {
	m.Helper()
	if failed := m.ensure(h, addrs...); len(failed) > 0 {
		m.Fatalf("failed: %v", failed)
	}
}

func (m *shelf) release(h *holding, addrs ...netip.Addr) {
	m.Helper()
	if _, err := h.release(m.Context(), func(addr netip.Addr) bool { return !slices.Contains(addrs, addr) }); err != nil {
		m.Fatal(err)
	}
}

func (m *shelf) sweep(h *holding, dry bool, want ...string) {
	m.Helper()
	if got, err := h.sweep(m.Context(), dry); err != nil || !slices.Equal(got, want) {
		m.Errorf("sweep, dry %v: %q, %v; want %q", dry, got, err, want)
	}
}

// has holds the interface to these addresses.
func (m *shelf) has(addrs ...netip.Addr) {
	m.Helper()
	now := m.Has()
	for _, a := range addrs {
		if _, there := now[a]; !there {
			m.Errorf("%s is missing", a)
		}
	}
	if len(now) != len(addrs) {
		m.Errorf("it has %v, want %v", now, addrs)
	}
}

// notes are what is noted, as the next process reads it.
func (m *shelf) noted(n int) {
	m.Helper()
	if notes := m.process().read(); len(notes) != n {
		m.Errorf("noted is %v, want %d notes", notes, n)
	}
}

func TestAddAndRelease(t *testing.T) {
	m := newShelf(t)
	h := m.process()
	if _, err := os.Stat(m.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("to open makes a folder: %v", err)
	}
	m.sweep(h, false)
	m.must(h, vip(1), vip(2))
	m.must(h, vip(2), vip(3))
	m.has(vip(1), vip(2), vip(3))
	m.release(h, vip(2))
	m.release(h, vip(2), vip(9))
	m.has(vip(1), vip(3))
	m.sweep(h, true, `address 10.96.0.1 on "loopback"`, `address 10.96.0.3 on "loopback"`)
	m.has(vip(1), vip(3))
	m.sweep(h, false, `address 10.96.0.1 on "loopback"`, `address 10.96.0.3 on "loopback"`)
	m.has()
	m.noted(0)
}

// TestForeign: an address that another program added is used, and stays; also where none can be added.
func TestForeign(t *testing.T) {
	m := newShelf(t)
	if err := m.Foreign(vip(1)); err != nil {
		t.Fatal(err)
	}
	h := m.process()
	m.must(h, vip(1), vip(2))
	if ours := h.ours(); ours(vip(1)) || !ours(vip(2)) {
		t.Error("it cannot tell which is its own")
	}
	m.release(h, vip(1), vip(2))
	m.has(vip(1))
	m.must(h, vip(1), vip(2))
	m.sweep(h, false, `address 10.96.0.2 on "loopback"`)
	m.has(vip(1))
	m.Deny(errors.ErrUnsupported)
	if err := h.letGo(); err != nil {
		t.Fatal(err)
	}
	m.must(m.process(), vip(1))
}

// TestReplaced: another program removed an address of ours, and added its own.
func TestReplaced(t *testing.T) {
	m := newShelf(t)
	h := m.process()
	m.must(h, vip(1))
	m.Gone(true)
	m.Gone(false)
	if err := m.put(assigned{addr: vip(1), alone: true, noSource: true}); err != nil { // even in the same form
		t.Fatal(err)
	}
	m.sweep(h, true)
	m.sweep(h, false)
	m.has(vip(1))
}

// TestKilled: the next process goes on with the addresses that it wants, and removes the others; also
// an address whose note does not have its time yet, and not one that another program added then.
func TestKilled(t *testing.T) {
	m := newShelf(t)
	first := m.process()
	m.must(first, vip(1), vip(2), netip.MustParseAddr("fd00::1"))
	for addr := range first.notes {
		first.notes[addr] = note{Interface: "loopback"}
	}
	first.notes[vip(3)] = note{Interface: "loopback"}
	if err := errors.Join(first.save(), first.lock.Close(), m.Foreign(vip(3))); err != nil {
		t.Fatal(err)
	}
	next := m.process()
	if !next.ours()(vip(1)) {
		t.Error("the next one takes a noted address for foreign")
	}
	m.must(next, vip(1))
	gone, err := next.release(t.Context(), func(addr netip.Addr) bool { return addr.Is6() || addr == vip(1) })
	if err != nil || !slices.Equal(gone, []string{`address 10.96.0.2 on "loopback"`}) {
		t.Errorf("strays: %q, %v", gone, err)
	}
	m.has(vip(1), vip(3), netip.MustParseAddr("fd00::1"))
	if err := next.lock.Close(); err != nil {
		t.Fatal(err)
	}
	m.sweep(m.process(), false, `address 10.96.0.1 on "loopback"`, `address fd00::1 on "loopback"`)
	m.has(vip(3))
	m.noted(0)
}

// TestOneAtATime: while one process adds addresses, no other one adds or removes any.
func TestOneAtATime(t *testing.T) {
	m := newShelf(t)
	from, to := m.process(), m.process()
	m.must(from, vip(1), vip(2))
	m.sweep(to, true)
	m.sweep(to, false)
	if _, err := to.ensure(t.Context(), "", []netip.Addr{vip(2), vip(3)}, func() {}); !errors.Is(err, statefile.ErrLocked) {
		t.Errorf("a second process adds addresses: %v", err)
	}
	if err := from.letGo(); err != nil {
		t.Fatal(err)
	}
	m.must(to, vip(2), vip(3))
	if _, err := from.release(t.Context(), func(netip.Addr) bool { return false }); !errors.Is(err, statefile.ErrLocked) {
		t.Errorf("the process before removes addresses: %v", err)
	}
	m.sweep(from, false)
	m.has(vip(1), vip(2), vip(3))
	m.sweep(to, false, `address 10.96.0.1 on "loopback"`, `address 10.96.0.2 on "loopback"`, `address 10.96.0.3 on "loopback"`)
}

// TestLost: an address that was removed under us is named once, and added again.
func TestLost(t *testing.T) {
	m := newShelf(t)
	h := m.process()
	m.must(h, vip(1), vip(2))
	if err := m.Remove(assigned{addr: vip(1)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]netip.Addr{{vip(1)}, nil} {
		if lost, err := h.lost(netip.Addr.IsValid); err != nil || !slices.Equal(lost, want) {
			t.Errorf("lost: %v, %v; want %v", lost, err, want)
		}
	}
	m.must(h, vip(1))
	m.has(vip(1), vip(2))
}

// TestFails: each error says which address cannot be had, where, and what to do; and leaves nothing.
func TestFails(t *testing.T) {
	m := newShelf(t)
	m.Slow(2)
	m.Elsewhere(vip(2))
	h := m.process()
	fails := func(want string, refused bool, failed map[netip.Addr]error) {
		t.Helper()
		if err := failed[vip(2)]; len(failed) != 1 || err == nil || errors.As(err, new(*sdk.Refusal)) != refused || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", failed, want)
		}
	}
	fails("another machine on the link has the address 10.96.0.2 already; try:", false, m.ensure(h, vip(1), vip(2)))
	m.has(vip(1))
	m.Deny(fmt.Errorf("iphlpapi.dll has no CreateUnicastIpAddressEntry: %w", errors.ErrUnsupported))
	fails(`the address 10.96.0.2 cannot be added to the loopback interface: iphlpapi.dll has no`, true, m.ensure(h, vip(1), vip(2)))
	m.Deny(fs.ErrPermission)
	fails("run the host as an administrator", true, m.ensure(h, vip(2)))
	m.Deny(nil)
	m.Gone(true)
	fails("Get-NetIPInterface", false, m.ensure(h, vip(2)))
	failed, err := h.ensure(t.Context(), "vEthernet (nat)", []netip.Addr{vip(2)}, func() {})
	fails(`to the interface "vEthernet (nat)"`, false, failed)
	if err != nil {
		t.Error(err)
	}
	m.sweep(h, false)
	m.noted(0)
}

// TestUnreadable: where the notes cannot be read nothing is removed.
func TestUnreadable(t *testing.T) {
	m := newShelf(t)
	h := m.process()
	m.must(h, vip(1))
	if err := errors.Join(h.letGo(), os.WriteFile(h.file, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m.sweep(m.process(), false)
	m.has(vip(1))
}
