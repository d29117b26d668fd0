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

// links implements linker by netlink.
type links struct {
	handle *netlink.Handle
	ours   netlink.Link // our device; nil if it was not found

	local    []netip.Addr // the last listing of the kernel's local routing table without our device, sorted
	listedAt time.Time

	end  chan struct{}   // closed by Unsubscribe; nil: not subscribed
	wake chan<- struct{} // buffered, capacity 1

	mu     sync.Mutex // guards the fields below
	events []netlink.AddrUpdate
	missed bool // some events were lost
}

func (l *links) Close() error {
	l.handle.Close()
	l.Unsubscribe()
	return nil
}

// Unsubscribe ends what Subscribe began.
func (l *links) Unsubscribe() {
	if l.end != nil {
		close(l.end)
		l.end = nil
	}
}

// Subscribe asks the kernel for events about addresses on all devices, in the network namespace of the calling
// thread, unless it was asked already. Unsubscribe ends two goroutines of the netlink library, and the goroutine
// of Subscribe ends after them.
func (l *links) Subscribe(wake chan<- struct{}) {
	if l.end != nil {
		return
	}
	end, updates := make(chan struct{}), make(chan netlink.AddrUpdate, 64)
	l.end, l.wake = end, wake
	options := netlink.AddrSubscribeOptions{ReceiveBufferSize: 8 << 20, ReceiveBufferForceSize: true}
	err := netlink.AddrSubscribeWithOptions(updates, end, options)
	l.mu.Lock()
	l.events, l.missed = nil, l.missed || err != nil
	l.mu.Unlock()
	if err != nil {
		return
	}
	go func() { // ends with Unsubscribe, or when the kernel dropped events
		for u := range updates {
			l.mu.Lock()
			l.events = append(l.events, u)
			l.mu.Unlock()
			select {
			case wake <- struct{}{}:
			default:
			}
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		select {
		case <-end:
		default:
			l.missed = true
		}
	}()
}

// Changes returns the changes since the last call. After lost events it subscribes again, because no more arrive.
func (l *links) Changes() addrChanges {
	if l.end == nil {
		return addrChanges{missed: true, moved: true}
	}
	l.mu.Lock()
	events, missed := l.events, l.missed
	l.events, l.missed = nil, false
	l.mu.Unlock()
	h := addrChanges{missed: missed, moved: missed}
	if missed {
		l.Unsubscribe()
		l.Subscribe(l.wake)
	}
	for _, u := range events {
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
	if time.Since(l.listedAt) >= localEvery { // the kernel sends no event for a local route without an interface address
		before := l.local
		h.moved = l.listLocal() == nil && !slices.Equal(before, l.local) || h.moved // after an error, list again at the next interval
	}
	return h
}

// localEvery is the interval at which Changes lists the kernel's local table. It also has every address that we
// bound, so it is long.
const localEvery = 10 * time.Second

// listLocal lists the single addresses of the kernel's local table.
func (l *links) listLocal() error {
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
	if err := l.findDevice(); err != nil {
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
	if err := l.listLocal(); err != nil {
		return a, err
	}
	a.others = slices.Clone(l.local)
	return a, nil
}

// findDevice finds our device, if it exists.
func (l *links) findDevice() error {
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
	return l.findDevice()
}

func (l *links) RemoveDevice() error {
	if err := l.findDevice(); err != nil || l.ours == nil {
		return err
	}
	defer func() { l.ours = nil }()
	return l.handle.LinkDel(l.ours)
}

// Bind adds addr to the device, and creates the device first if needed. The address is not announced on any
// link, so duplicate address detection is disabled. An IPv6 address is deprecated (preferred lifetime 0):
// otherwise the kernel would choose it as a source address for connections of the node, even on a device that
// is down.
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
	return ignore(err, unix.EEXIST)
}

// allowIPv6 enables IPv6 on the device, for nodes on which new devices have it disabled. The device is ours
// alone, so nothing has to be restored.
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
	return ignore(ignore(l.handle.AddrDel(l.ours, address(addr, 0)), unix.EADDRNOTAVAIL), unix.ENODEV)
}

func address(addr netip.Addr, flags int) *netlink.Addr {
	bits := addr.BitLen()
	a := &netlink.Addr{IPNet: &net.IPNet{IP: net.IP(addr.AsSlice()), Mask: net.CIDRMask(bits, bits)}, Flags: flags}
	if addr.Is6() {
		a.ValidLft, a.PreferedLft = math.MaxUint32, 0
	}
	return a
}
