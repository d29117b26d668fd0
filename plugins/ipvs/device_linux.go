// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
)

// links are the node's addresses, by netlink.
type links struct {
	handle  *netlink.Handle
	ours    netlink.Link // our device, once it was seen
	monitor *monitor     // nil: not subscribed

	local    []netip.Addr // the addresses of the kernel's local table but those of our device, in order, as they were listed last
	listedAt time.Time
}

func (l *links) Close() error {
	l.handle.Close()
	l.Unsubscribe()
	return nil
}

// Unsubscribe ends what Subscribe began.
func (l *links) Unsubscribe() {
	if l.monitor != nil {
		l.monitor.close()
		l.monitor = nil
	}
}

// Subscribe has the kernel tell of addresses that come and go, if it does not yet.
func (l *links) Subscribe(wake chan<- struct{}) {
	if l.monitor == nil {
		l.monitor = subscribe(wake)
	}
}

// Changes are those since the last call. A monitor that missed some is replaced: the kernel
// tells it nothing more.
func (l *links) Changes() addrChanges {
	if l.monitor == nil {
		return addrChanges{missed: true, moved: true}
	}
	updates, missed := l.monitor.take()
	h := addrChanges{missed: missed, moved: missed}
	if missed {
		wake := l.monitor.wake
		l.Unsubscribe()
		l.Subscribe(wake)
	}
	for _, u := range updates {
		addr, ok := netip.AddrFromSlice(u.LinkAddress.IP)
		addr = addr.Unmap()
		switch _, known := slices.BinarySearchFunc(l.local, addr, netip.Addr.Compare); {
		case !ok:
		case l.ours == nil || u.LinkIndex != l.ours.Attrs().Index:
			h.moved = h.moved || known != u.NewAddr
		case !u.NewAddr:
			h.lost = append(h.lost, addr)
		}
	}
	if time.Since(l.listedAt) >= localEvery { // an address of no interface is no event
		before := l.local
		h.moved = l.list() == nil && !slices.Equal(before, l.local) || h.moved // after an error the next time
	}
	return h
}

// localEvery is how often the kernel's local table is listed, which has each address that we bound.
const localEvery = 10 * time.Second

// list lists the single addresses of the kernel's local table.
func (l *links) list() error {
	l.listedAt = time.Now()
	all, err := flows.Local()
	if err != nil {
		return err
	}
	l.local = nil
	for _, p := range all {
		if p.IsSingleIP() {
			l.local = append(l.local, p.Addr())
		}
	}
	return nil
}

func (l *links) Addrs() (addresses, error) {
	var a addresses
	if err := l.look(); err != nil {
		return a, err
	}
	a.device = l.ours != nil
	list, err := l.handle.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return a, fmt.Errorf("list the node's addresses: %w", err)
	}
	for _, found := range list {
		if addr, ok := netip.AddrFromSlice(found.IP); ok && a.device && found.LinkIndex == l.ours.Attrs().Index {
			a.ours = append(a.ours, addr.Unmap())
		}
	}
	if err := l.list(); err != nil {
		return a, err
	}
	a.others = slices.Clone(l.local)
	return a, nil
}

// look finds our device, if it is there.
func (l *links) look() error {
	link, err := l.handle.LinkByName(device)
	if errors.As(err, new(netlink.LinkNotFoundError)) {
		l.ours = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for %s: %w", device, err)
	}
	l.ours = link
	return nil
}

func (l *links) makeDevice() error {
	err := l.handle.LinkAdd(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: device}})
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make %s: %w", device, err)
	}
	return l.look()
}

func (l *links) RemoveDevice() error {
	if err := l.look(); err != nil || l.ours == nil {
		return err
	}
	defer func() { l.ours = nil }()
	return l.handle.LinkDel(l.ours)
}

// Bind gives the device addr, and creates it before the first. Nothing else on the wire has it, so there is no asking.
// In IPv6 it is deprecated from the first: the kernel would call by any address of the
// node that looks near, also on a device that is not up.
func (l *links) Bind(addr netip.Addr) error {
	if l.ours == nil {
		if err := l.makeDevice(); err != nil {
			return err
		}
	}
	err := l.handle.AddrAdd(l.ours, address(addr, unix.IFA_F_NODAD))
	if addr.Is6() && errors.Is(err, unix.EACCES) {
		if err := allowIPv6(); err != nil {
			return err
		}
		err = l.handle.AddrAdd(l.ours, address(addr, unix.IFA_F_NODAD))
	}
	return except(err, unix.EEXIST)
}

// allowIPv6 lets the device have addresses of IPv6 where the node is set up so that new
// devices have none. The device is ours alone, so there is nothing to give back.
func allowIPv6() error {
	const off = sysctl.Folder + "net/ipv6/conf/" + device + "/disable_ipv6"
	if err := os.WriteFile(off, []byte("0"), 0); err != nil {
		return fmt.Errorf("allow IPv6 on %s: %w; try: sysctl -w net.ipv6.conf.%s.disable_ipv6=0", device, err, device)
	}
	return nil
}

func (l *links) Unbind(addr netip.Addr) error {
	if l.ours == nil {
		return nil
	}
	return except(except(l.handle.AddrDel(l.ours, address(addr, 0)), unix.EADDRNOTAVAIL), unix.ENODEV)
}

func address(addr netip.Addr, flags int) *netlink.Addr {
	bits := addr.BitLen()
	a := &netlink.Addr{IPNet: &net.IPNet{IP: net.IP(addr.AsSlice()), Mask: net.CIDRMask(bits, bits)}, Flags: flags}
	if addr.Is6() {
		a.ValidLft, a.PreferedLft = math.MaxUint32, 0
	}
	return a
}

// A monitor is told by the kernel which addresses come and go, on any device. Two goroutines
// of the library's end with close; one of ours ends after them.
type monitor struct {
	done chan struct{}
	wake chan<- struct{} // has room for one

	mu      sync.Mutex // guards what follows
	changes []netlink.AddrUpdate
	missed  bool // there were more than were noted
}

// most is how many changes are kept. After more, everything is looked at.
const most = 1 << 16

// subscribe begins a monitor in the network namespace of the calling thread.
func subscribe(wake chan<- struct{}) *monitor {
	m := &monitor{done: make(chan struct{}), wake: wake}
	updates := make(chan netlink.AddrUpdate, 64)
	options := netlink.AddrSubscribeOptions{ReceiveBufferSize: 8 << 20, ReceiveBufferForceSize: true}
	if netlink.AddrSubscribeWithOptions(updates, m.done, options) != nil {
		m.missed = true
		return m
	}
	go func() { // ends with close, or when the kernel lost something
		for u := range updates {
			m.onEvent(u)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.missed = true
	}()
	return m
}

// onEvent notes a change, and wakes the frame, if that was not done already.
func (m *monitor) onEvent(u netlink.AddrUpdate) {
	m.mu.Lock()
	if m.missed = m.missed || len(m.changes) == most; !m.missed {
		m.changes = append(m.changes, u)
	}
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// take is what was noted since the last call, and whether there was more.
func (m *monitor) take() ([]netlink.AddrUpdate, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	changes := m.changes
	m.changes = nil
	return changes, m.missed
}

func (m *monitor) close() { close(m.done) }
