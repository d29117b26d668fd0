// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/moby/ipvs"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

// moby is IPVS through moby's library, in the network namespace of the thread that
// opened it. One goroutine at a time may use it.
type moby struct {
	handle *ipvs.Handle
	pipe   *pipe // for many steps at once
}

func openBalancer() (moby, error) {
	handle, err := ipvs.New("")
	if err != nil {
		return moby{}, fmt.Errorf("open ipvs: %w", err)
	}
	pipe, err := openPipe()
	if err != nil {
		handle.Close()
		return moby{}, err
	}
	return moby{handle, pipe}, nil
}

func (m moby) Close() error {
	m.handle.Close()
	return m.pipe.Close()
}

func (m moby) Send(steps []step) ([]error, error) { return m.pipe.send(steps) }

func (m moby) Services() (map[serviceKey]observed, error) {
	list, err := m.handle.GetServices()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	loads, err := m.Table()
	if err != nil {
		return nil, err
	}
	all := make(map[serviceKey]observed, len(list))
	for _, svc := range list {
		at, err := keyOf(svc)
		if err != nil {
			continue // of a kind that we never make
		}
		v := observed{scheduling: scheduling{scheduler: svc.SchedName}, flags: svc.Flags &^ flagHashed, dests: make(map[netip.AddrPort]int)}
		if svc.Flags&flagPersistent != 0 {
			v.scheduling.affinity = svc.Timeout
		}
		dests, there := loads[at]
		if !there {
			if dests, _, err = m.Loads(at); err != nil {
				return nil, err
			}
		}
		for dest, l := range dests {
			v.dests[dest] = l.weight
		}
		all[at] = v
	}
	return all, nil
}

func (m moby) Table() (table, error) {
	file, err := os.Open("/proc/thread-self/net/ip_vs")
	if err != nil {
		return nil, fmt.Errorf("list reals: %w", err)
	}
	defer file.Close()
	return readTable(file)
}

func (m moby) Loads(at serviceKey) (map[netip.AddrPort]load, bool, error) {
	list, err := m.handle.GetDestinations(mobyService(at, scheduling{}))
	if errors.Is(err, unix.ESRCH) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("list reals of %s: %w", at, err)
	}
	loads := make(map[netip.AddrPort]load, len(list))
	for _, d := range list {
		addr, _ := netip.AddrFromSlice(d.Address)
		loads[netip.AddrPortFrom(addr, d.Port)] = load{d.Weight, d.ActiveConnections, d.InactiveConnections}
	}
	return loads, true, nil
}

func (m moby) Timeouts() (timeouts, error) {
	c, err := m.handle.GetConfig()
	if err != nil {
		return timeouts{}, fmt.Errorf("read ipvs timeouts: %w", err)
	}
	return timeouts{c.TimeoutTCP, c.TimeoutTCPFin, c.TimeoutUDP}, nil
}

func (m moby) SetTimeouts(t timeouts) error {
	if err := m.handle.SetConfig(&ipvs.Config{TimeoutTCP: t.TCP, TimeoutTCPFin: t.TCPFin, TimeoutUDP: t.UDP}); err != nil {
		return fmt.Errorf("set ipvs timeouts: %w", err)
	}
	return nil
}

// except is err, but for what says that it was done already.
func except(err error, done unix.Errno) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}

// mobyService is at in moby's words.
func mobyService(at serviceKey, h scheduling) *ipvs.Service {
	s := &ipvs.Service{
		FWMark:        at.mark,
		SchedName:     h.scheduler,
		Flags:         h.flags(),
		Timeout:       h.affinity,
		Netmask:       0xffffffff, // a client is one address
		AddressFamily: unix.AF_INET,
	}
	if at.family == sdk.IPv6 {
		s.AddressFamily, s.Netmask = unix.AF_INET6, 128
	}
	if at.mark == 0 {
		s.Protocol = number(at.protocol)
		s.Address, s.Port = net.IP(at.addr.Addr().AsSlice()), at.addr.Port()
	}
	return s
}

// keyOf is the way back from mobyService.
func keyOf(s *ipvs.Service) (serviceKey, error) {
	at := serviceKey{family: sdk.IPv4, mark: s.FWMark}
	if s.AddressFamily == unix.AF_INET6 {
		at.family = sdk.IPv6
	}
	if s.FWMark != 0 {
		return at, nil
	}
	addr, ok := netip.AddrFromSlice(s.Address)
	for _, p := range []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP} {
		if number(p) == s.Protocol && ok {
			at.protocol, at.addr = p, netip.AddrPortFrom(addr, s.Port)
			return at, nil
		}
	}
	return at, fmt.Errorf("a virtual server of protocol %d", s.Protocol)
}

// number is what IP calls a protocol.
func number(p sdk.Protocol) uint16 {
	switch p {
	case sdk.UDP:
		return unix.IPPROTO_UDP
	case sdk.SCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}
