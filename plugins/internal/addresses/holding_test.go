// SPDX-License-Identifier: Apache-2.0

package addresses

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
)

// vip is an address of a Service.
func vip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}) }

// A machine is a Fake, and the folder of notes that its processes share.
type machine struct {
	*testing.T
	Fake
	dir string
}

func newMachine(t *testing.T) *machine { return &machine{T: t, dir: t.TempDir() + "/addresses"} }

// process is another one, which ends with the test.
func (m *machine) process() *Holding {
	h := Open(&m.Fake, m.dir)
	m.Cleanup(func() { _ = h.Close() })
	return h
}

func (m *machine) ensure(h *Holding, addrs ...netip.Addr) map[netip.Addr]error {
	m.Helper()
	failed, err := h.Ensure(m.Context(), "", addrs, func() {})
	if err != nil {
		m.Fatal(err)
	}
	return failed
}

// must is ensure of what can be had.
func (m *machine) must(h *Holding, addrs ...netip.Addr) {
	m.Helper()
	if failed := m.ensure(h, addrs...); len(failed) > 0 {
		m.Fatalf("failed: %v", failed)
	}
}

func (m *machine) release(h *Holding, addrs ...netip.Addr) {
	m.Helper()
	if err := h.Release(m.Context(), addrs); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) sweep(h *Holding, dry bool, want ...string) {
	m.Helper()
	if got, err := h.Sweep(m.Context(), dry); err != nil || !slices.Equal(got, want) {
		m.Errorf("sweep, dry %v: %q, %v; want %q", dry, got, err, want)
	}
}

// has holds the interface to these addresses.
func (m *machine) has(addrs ...netip.Addr) {
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

// empty holds the folder to having nothing but its lock.
func (m *machine) empty() {
	m.Helper()
	entries, err := os.ReadDir(m.dir)
	if err != nil || len(entries) > 1 {
		m.Errorf("it was left %v, %v", entries, err)
	}
}

func TestAddAndRelease(t *testing.T) {
	m := newMachine(t)
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
	m.sweep(h, true, `address 10.96.0.1 on "lo"`, `address 10.96.0.3 on "lo"`)
	m.has(vip(1), vip(3))
	m.sweep(h, false, `address 10.96.0.1 on "lo"`, `address 10.96.0.3 on "lo"`)
	m.has()
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	m.empty()
}

// TestForeign: what another program added is used, and stays.
func TestForeign(t *testing.T) {
	m := newMachine(t)
	if err := m.Foreign(vip(1)); err != nil {
		t.Fatal(err)
	}
	h := m.process()
	m.must(h, vip(1), vip(2))
	if h.Ours(vip(1)) || !h.Ours(vip(2)) {
		t.Error("it cannot tell which is its own")
	}
	m.release(h, vip(1), vip(2))
	m.has(vip(1))
	m.must(h, vip(1), vip(2))
	m.sweep(h, false, `address 10.96.0.2 on "lo"`)
	m.has(vip(1))
}

// TestReplaced: another program removed ours, and added its own.
func TestReplaced(t *testing.T) {
	m := newMachine(t)
	h := m.process()
	m.must(h, vip(1))
	m.Gone(true)
	m.Gone(false)
	if err := m.put(Address{Addr: vip(1), Alone: true, NoSource: true}); err != nil { // even in the same form
		t.Fatal(err)
	}
	m.sweep(h, true)
	m.must(m.process(), vip(1))
	m.sweep(h, false)
	m.has(vip(1))
}

// TestKilled: the next process goes on with what it wants, and removes the rest.
func TestKilled(t *testing.T) {
	m := newMachine(t)
	first := m.process()
	m.must(first, vip(1), vip(2), netip.MustParseAddr("fd00::1"))
	_ = first.life.Close()
	next := m.process()
	if !next.Ours(vip(1)) {
		t.Error("the next one takes what is noted for foreign")
	}
	m.must(next, vip(1))
	gone, err := next.Strays(t.Context(), netip.Addr.Is4)
	if err != nil || !slices.Equal(gone, []string{`address 10.96.0.2 on "lo"`}) {
		t.Errorf("strays: %q, %v", gone, err)
	}
	m.has(vip(1), netip.MustParseAddr("fd00::1"))
	_ = next.life.Close()
	m.sweep(m.process(), false, `address 10.96.0.1 on "lo"`, `address fd00::1 on "lo"`)
	m.has()
}

// TestTwo: during a swap two processes want an address. What the one that ends removes is what
// the other does not want.
func TestTwo(t *testing.T) {
	m := newMachine(t)
	from, to := m.process(), m.process()
	m.must(from, vip(1), vip(2))
	m.must(to, vip(2), vip(3))
	m.sweep(m.process(), false) // by hand: both live
	m.sweep(from, false, `address 10.96.0.1 on "lo"`)
	m.has(vip(2), vip(3))
	if err := from.Close(); err != nil {
		t.Error(err)
	}
	m.release(to, vip(2), vip(3))
	m.has()
}

// TestLost: what was removed under us is said once, and added again.
func TestLost(t *testing.T) {
	m := newMachine(t)
	h := m.process()
	m.must(h, vip(1), vip(2))
	if err := m.Remove(Address{Addr: vip(1)}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]netip.Addr{{vip(1)}, nil} {
		if lost, err := h.Lost(netip.Addr.IsValid); err != nil || !slices.Equal(lost, want) {
			t.Errorf("lost: %v, %v; want %v", lost, err, want)
		}
	}
	m.must(h, vip(1))
	m.has(vip(1), vip(2))
}

// TestFails: each says what cannot be had, where, and what to do; and leaves nothing.
func TestFails(t *testing.T) {
	m := newMachine(t)
	m.Slow(2)
	m.Elsewhere(vip(2))
	h := m.process()
	fails := func(want string, hard bool, failed map[netip.Addr]error) {
		t.Helper()
		fault, ok := errors.AsType[*Fault](failed[vip(2)])
		if len(failed) != 1 || !ok || fault.Hard != hard || !strings.Contains(fault.Error(), want) {
			t.Errorf("%v, want %q", failed, want)
		}
	}
	fails("another machine on the link has the address 10.96.0.2 already; try:", false, m.ensure(h, vip(1), vip(2)))
	m.has(vip(1))
	m.Deny(fmt.Errorf("iphlpapi.dll has no CreateUnicastIpAddressEntry: %w", errors.ErrUnsupported))
	fails(`the address 10.96.0.2 cannot be added to the interface "lo": iphlpapi.dll has no`, true, m.ensure(h, vip(1), vip(2)))
	m.Deny(fs.ErrPermission)
	fails("run the host as an administrator", true, m.ensure(h, vip(2)))
	m.Deny(nil)
	m.Gone(true)
	fails("has no loopback interface", false, m.ensure(h, vip(2)))
	failed, err := h.Ensure(t.Context(), "vEthernet (nat)", []netip.Addr{vip(2)}, func() {})
	fails(`no interface is called "vEthernet (nat)"; try: Get-NetIPInterface`, false, failed)
	if err != nil {
		t.Error(err)
	}
	m.sweep(h, false)
	_ = h.Close()
	m.empty()
}

// TestUnreadable: of what is noted in a way that cannot be read nothing is removed.
func TestUnreadable(t *testing.T) {
	m := newMachine(t)
	h := m.process()
	m.must(h, vip(1))
	if err := os.WriteFile(h.notes.file(vip(1)), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	m.sweep(h, false)
	m.has(vip(1))
	_ = h.Close()
	m.empty()
}
