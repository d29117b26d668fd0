// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/statefile"
)

// A vipTest is a machine with fake interfaces, none of which has 127.0.0.0/8, so that VIPs have to be added. Sockets can be
// opened at all of these addresses nevertheless.
type vipTest struct {
	*testing.T
	fakeInterfaces
	dir string
}

func newVIPTest(t *testing.T) *vipTest {
	needsLoopback(t)
	return &vipTest{T: t, dir: t.TempDir()}
}

// vip returns the address of a Service.
func vip(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}) }

// process returns the vips of another process.
func (m *vipTest) process() *vips {
	v := newVIPs(&m.fakeInterfaces, m.dir)
	m.Cleanup(func() { _ = v.unlock() })
	return v
}

// add adds addresses, and returns those that are missing afterwards.
func (m *vipTest) add(v *vips, addrs ...netip.Addr) map[netip.Addr]error {
	m.Helper()
	if err := v.add(m.Context(), addrs, func() {}); err != nil {
		m.Fatal(err)
	}
	return v.missing
}

// mustAdd fails if an address is missing.
func (m *vipTest) mustAdd(v *vips, addrs ...netip.Addr) {
	m.Helper()
	if missing := m.add(v, addrs...); len(missing) > 0 {
		m.Fatalf("missing: %v", missing)
	}
}

// drop drops and releases addresses.
func (m *vipTest) drop(v *vips, addrs ...netip.Addr) {
	m.Helper()
	for _, addr := range addrs {
		v.drop(addr)
	}
	if _, err := v.release(func(netip.Addr) bool { return false }); err != nil {
		m.Fatal(err)
	}
}

// sweep fails if sweep does not return descriptions of these addresses.
func (m *vipTest) sweep(v *vips, dry bool, want ...netip.Addr) {
	m.Helper()
	var lines []string
	for _, addr := range want {
		lines = append(lines, fmt.Sprintf("address %s on %q", addr, "loopback"))
	}
	if got, err := v.sweep(dry); err != nil || !slices.Equal(got, lines) {
		m.Errorf("sweep, dry %v: %q, %v; want %q", dry, got, err, lines)
	}
}

// has fails if the interface has other addresses.
func (m *vipTest) has(addrs ...netip.Addr) {
	m.Helper()
	slices.SortFunc(addrs, netip.Addr.Compare)
	if got := m.addrs(); !slices.Equal(got, addrs) {
		m.Errorf("the interface has %v, want %v", got, addrs)
	}
}

func TestAddAndRelease(t *testing.T) {
	m := newVIPTest(t)
	v := m.process()
	if _, err := os.Stat(filepath.Dir(v.file)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("newVIPs created a folder: %v", err)
	}
	m.sweep(v, false)
	m.mustAdd(v, vip(1), vip(2))
	m.mustAdd(v, vip(2), vip(3))
	m.has(vip(1), vip(2), vip(3))
	m.drop(v, vip(2))
	m.drop(v, vip(2), vip(9))
	m.has(vip(1), vip(3))
	m.sweep(v, true, vip(1), vip(3))
	m.has(vip(1), vip(3))
	m.sweep(v, false, vip(1), vip(3))
	m.has()
	if notes := m.process().read(); len(notes) > 0 {
		t.Errorf("notes are left: %v", notes)
	}
}

// An address that another program added is used and stays, also if none can be added.
func TestForeignAddress(t *testing.T) {
	m := newVIPTest(t)
	v := m.process()
	if err := m.AddOther(vip(1)); err != nil {
		t.Fatal(err)
	}
	m.mustAdd(v, vip(1), vip(2))
	m.drop(v, vip(1), vip(2))
	m.has(vip(1))
	m.mustAdd(v, vip(1), vip(2))
	m.sweep(v, false, vip(2))
	m.has(vip(1))
	m.set(func() { m.denied = errors.ErrUnsupported })
	if err := v.unlock(); err != nil {
		t.Fatal(err)
	}
	m.mustAdd(m.process(), vip(1))
}

// An address that another program removed and added again is not ours, even if it looks like ours.
func TestReplacedAddress(t *testing.T) {
	m := newVIPTest(t)
	v := m.process()
	m.mustAdd(v, vip(1))
	m.removeInterface(true)
	m.removeInterface(false)
	if err := m.Add("", vip(1)); err != nil {
		t.Fatal(err)
	}
	m.sweep(v, true)
	m.sweep(v, false)
	m.has(vip(1))
}

// A new process removes the addresses of a killed one that it does not need, also those without a time in their notes, but
// not an address that another program added.
func TestAddressesOfKilledProcess(t *testing.T) {
	m := newVIPTest(t)
	killed := m.process()
	six := netip.MustParseAddr("fd00::1")
	m.mustAdd(killed, vip(1), vip(2), six)
	for addr := range killed.notes {
		killed.notes[addr] = note{Interface: "loopback"}
	}
	killed.notes[vip(3)] = note{Interface: "loopback"}
	if err := errors.Join(killed.save(), killed.lock.Close(), m.AddOther(vip(3))); err != nil {
		t.Fatal(err)
	}
	next := m.process()
	m.mustAdd(next, vip(1))
	gone, err := next.release(netip.Addr.Is6) // the other family has not added its addresses yet
	if err != nil || !slices.Equal(gone, []string{`address 10.96.0.2 on "loopback"`}) {
		t.Errorf("removed: %q, %v", gone, err)
	}
	m.has(vip(1), vip(3), six)
	if err := next.lock.Close(); err != nil {
		t.Fatal(err)
	}
	m.sweep(m.process(), false, vip(1), six)
	m.has(vip(3))
}

// Only one process at a time adds and removes addresses.
func TestAddressLock(t *testing.T) {
	m := newVIPTest(t)
	from, to := m.process(), m.process()
	m.mustAdd(from, vip(1), vip(2))
	m.sweep(to, true)
	m.sweep(to, false)
	if missing := m.add(to, vip(2), vip(3)); !errors.Is(missing[vip(3)], statefile.ErrLocked) {
		t.Errorf("a second process adds addresses: %v", missing)
	}
	if err := from.unlock(); err != nil {
		t.Fatal(err)
	}
	m.mustAdd(to, vip(2), vip(3))
	if _, err := from.release(func(netip.Addr) bool { return false }); !errors.Is(err, statefile.ErrLocked) {
		t.Errorf("the former process removes addresses: %v", err)
	}
	m.sweep(from, false)
	m.has(vip(1), vip(2), vip(3))
	m.sweep(to, false, vip(1), vip(2), vip(3))
}

func TestCannotAdd(t *testing.T) {
	m := newVIPTest(t)
	m.set(func() { m.slow, m.taken = 2, map[netip.Addr]bool{vip(2): true} })
	v := m.process()
	for _, c := range []struct {
		name    string
		prepare func()
		want    string
		refusal bool
	}{
		{"another machine has it", func() {}, "another machine on the link has the address 10.96.0.2 already; try:", false},
		{"no system call", func() {
			m.denied = fmt.Errorf("iphlpapi.dll has no CreateUnicastIpAddressEntry: %w", errors.ErrUnsupported)
		}, `the address 10.96.0.2 cannot be added to the interface loopback: iphlpapi.dll has no`, true},
		{"no permission", func() { m.denied = fs.ErrPermission }, "run the host as an administrator", true},
		{"no interface", func() { m.denied, m.missing = nil, true }, "Get-NetIPAddress", false},
		{"no interface with this name", func() { v.on = "vEthernet (nat)" }, `to the interface vEthernet (nat)`, false},
	} {
		m.set(c.prepare)
		missing := m.add(v, vip(1), vip(2))
		if err := missing[vip(2)]; len(missing) != 1 || err == nil || errors.As(err, new(*sdk.Refusal)) != c.refusal || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, missing, c.want)
		}
		m.has(vip(1))
	}
	m.sweep(v, false, vip(1))
}

// If the notes are damaged, no address is removed.
func TestDamagedNotes(t *testing.T) {
	m := newVIPTest(t)
	v := m.process()
	m.mustAdd(v, vip(1))
	if err := errors.Join(v.unlock(), os.WriteFile(v.file, []byte("{"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m.sweep(m.process(), false)
	m.has(vip(1))
}

// own returns the addresses of the machine.
func (m *vipTest) own() (all []address, err error) {
	for _, addr := range m.addrs() {
		all = append(all, address{prefix: netip.PrefixFrom(addr, addr.BitLen())})
	}
	return append(all, address{prefix: netip.MustParsePrefix("127.0.0.1/32")}), nil
}

// standby returns a plugin that may add addresses, with these Services.
func (m *vipTest) standby(services ...sdk.Service) *stage {
	m.Helper()
	s := &stage{T: m.T, plugin: newPluginOn(&m.fakeInterfaces, m.own, m.dir)}
	m.Cleanup(func() { s.Close() })
	if _, err := s.Configure(m.Context(), sdk.Setup{Options: []byte(`{"redirect": "never", "addresses": "auto"}`)}); err != nil {
		m.Fatal(err)
	}
	s.must(sdk.Update{Full: true, Node: &sdk.Node{Name: "n1"}, Set: services})
	return s
}

// active returns such a plugin in the role Active.
func (m *vipTest) active(services ...sdk.Service) *stage {
	m.Helper()
	s := m.standby(services...)
	s.role(sdk.Active)
	return s
}

func hostOf(addr string) netip.Addr { return addrPortOf(addr).Addr() }

// An address exists while a Service needs it.
func TestAddresses(t *testing.T) {
	m := newVIPTest(t)
	front, more, idle, back := at(1, 8000), at(3, 8000), at(4, 8000), at(2, 8000)
	endpoint(t, back, nil)
	s := m.standby(svc("web", "cluster-ip "+front, back), svc("idle", "cluster-ip "+idle, ""))
	m.has()
	s.role(sdk.Active)
	finds(t, front, back)
	m.has(hostOf(front), hostOf(idle)) // without a socket, the kernel refuses clients
	s.set(svc("web", "cluster-ip "+front+", external-ip "+more, back), svc("twin", "cluster-ip "+at(1, 8001), back))
	finds(t, more, back)
	m.has(hostOf(front), hostOf(more), hostOf(idle))
	s.must(sdk.Update{Delete: []sdk.Name{svc("web", "cluster-ip "+front, back).Name}})
	m.has(hostOf(front), hostOf(idle)) // twin needs it
	want := []string{"sockets: 1", `address ` + hostOf(front).String() + ` on "loopback"`, `address ` + hostOf(idle).String() + ` on "loopback"`}
	for _, dry := range []bool{true, false} {
		got, err := s.Cleanup(t.Context(), sdk.Leftovers{DryRun: dry})
		got = slices.DeleteFunc(got, func(name string) bool { return strings.HasPrefix(name, "connections and UDP flows") }) // those of finds, which may still be open
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("cleanup, dry run %v: %q, %v; want %q", dry, got, err, want)
		}
	}
	m.has()
}

// Added addresses take no node ports, also those of another process.
func TestAddressesTakeNoNodePorts(t *testing.T) {
	m := newVIPTest(t)
	front := at(1, 8000)
	for _, s := range []*stage{m.active(svc("web", "cluster-ip "+front, at(2, 8000))), m.standby()} {
		own, err := s.addresses()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range own {
			if a.foreign != (a.prefix.Addr() == hostOf(front)) {
				t.Errorf("%v: foreign is %v", a.prefix, a.foreign)
			}
		}
	}
}

// If an address cannot be added, its Service fails and all others are served.
func TestAddressFails(t *testing.T) {
	m := newVIPTest(t)
	front, taken, good, back := at(1, 8000), at(3, 8000), at(4, 8000), at(2, 8000)
	endpoint(t, back, nil)
	s := m.active(svc("web", "cluster-ip "+front, back))
	m.set(func() { m.taken = map[netip.Addr]bool{hostOf(taken): true} })
	bad := svc("bad", "cluster-ip "+at(5, 8000)+", external-ip "+taken, back)
	r := s.offer(sdk.Update{Set: []sdk.Service{bad, svc("good", "cluster-ip "+good, back)}})
	if len(r.Failed) != 1 || r.Failed[0].Name != bad.Name || !strings.Contains(r.Failed[0].Err.Error(), "another machine on the link has the address") {
		t.Errorf("failed: %v", r.Failed)
	}
	finds(t, good, back)
	m.has(hostOf(front), hostOf(good))
	m.set(func() { m.denied = errors.ErrUnsupported })
	// A successor finds that out in Standby, before a swap.
	more := svc("more", "cluster-ip 192.0.2.5:8000", back)
	for _, s := range []*stage{s, m.standby()} {
		r := s.offer(sdk.Update{Set: []sdk.Service{more}})
		if refusal := new(sdk.Refusal); len(r.Failed) != 1 || !errors.As(r.Failed[0].Err, &refusal) || !strings.Contains(refusal.Try, "addresses to never") {
			t.Errorf("failed: %v", r.Failed)
		}
	}
}

// An address that another program removed is added again, with new sockets. While that fails, the report names the Service.
func TestRemovedAddress(t *testing.T) {
	m := newVIPTest(t)
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, nil)
	s := m.active(svc("web", "cluster-ip "+front, back))
	socket := s.socket(place{sdk.TCP, addrPortOf(front)})
	if err := m.Remove(assigned{addr: hostOf(front)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if len(m.addrs()) == 0 || s.Report().Repaired == 0 {
			return errors.New("the address is still missing")
		}
		return nil
	})
	finds(t, front, back)
	if s.socket(place{sdk.TCP, addrPortOf(front)}) == socket {
		t.Error("the former socket is still open")
	}
	m.removeInterface(true)
	eventually(t, func() error {
		if notes := s.Report().Notes; len(notes) != 1 || !strings.HasPrefix(notes[0], "ns1/web/tcp4 is not served at "+front) || !strings.Contains(notes[0], "to the interface loopback") {
			return fmt.Errorf("notes: %q", notes)
		}
		return nil
	})
	m.removeInterface(false)
	eventually(t, func() error {
		if notes := s.Report().Notes; len(notes) > 0 {
			return fmt.Errorf("notes: %q", notes)
		}
		return nil
	})
	finds(t, front, back)
}

// A successor that becomes Active while its predecessor has the sockets and the addresses serves as soon as the predecessor
// has released them and the host sets the role again.
func TestActiveBesidePredecessor(t *testing.T) {
	m := newVIPTest(t)
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, nil)
	web := svc("web", "cluster-ip "+front, back)
	from, to := m.active(web), m.active(web)
	if to.socket(place{sdk.TCP, addrPortOf(front)}) != nil {
		t.Fatal("the successor serves at an address that its predecessor holds")
	}
	from.role(sdk.Yielded)
	to.role(sdk.Active)
	if to.socket(place{sdk.TCP, addrPortOf(front)}) == nil {
		t.Error("the successor does not serve")
	}
	finds(t, front, back)
}

// On systems other than Windows no address is added.
func TestAddressesElsewhere(t *testing.T) {
	if theInterfaces() != nil {
		t.Skip("this system adds addresses")
	}
	_, err := newPlugin(t.TempDir()).Configure(t.Context(), sdk.Setup{Options: []byte(`{"addresses": "auto"}`)})
	if refusal := new(sdk.Refusal); !errors.As(err, &refusal) || refusal.Field != "options.addresses" || !strings.Contains(refusal.Try, "redirect: auto") {
		t.Errorf("%v", err)
	}
}
