// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/sdk"
)

// moby implements balancer by moby's library, in the network namespace of the thread that opened it. Only one
// goroutine at a time may use it. It sends steps over a socket of its own: the library would send one step and wait
// for the answer.
type moby struct {
	handle *ipvs.Handle
	socket *nl.NetlinkSocket
	family uint16 // the kernel's number for IPVS
}

// answerTimeout is how long Send waits for an answer of the kernel.
const answerTimeout = 30 * time.Second

func openBalancer() (moby, error) {
	handle, err := ipvs.New("")
	if err != nil {
		return moby{}, fmt.Errorf("open ipvs: %w", err)
	}
	generic, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		handle.Close()
		return moby{}, fmt.Errorf("find ipvs in the kernel: %w", err)
	}
	socket, err := nl.Subscribe(unix.NETLINK_GENERIC)
	if err != nil {
		handle.Close()
		return moby{}, fmt.Errorf("open netlink: %w", err)
	}
	wait := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	return moby{handle, socket, generic.ID}, socket.SetReceiveTimeout(&wait)
}

func (m moby) Close() error {
	m.handle.Close()
	m.socket.Close()
	return nil
}

func (m moby) Services() (map[serviceKey]state, error) {
	list, err := m.handle.GetServices()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	loads, err := m.Table()
	if err != nil {
		return nil, err
	}
	all := make(map[serviceKey]state, len(list))
	for _, svc := range list {
		at, err := keyOf(svc)
		if err != nil {
			continue // a protocol that we never use
		}
		h := scheduling{scheduler: svc.SchedName}
		if svc.Flags&flagPersistent != 0 {
			h.affinity = svc.Timeout
		}
		all[at] = newState(h, svc.Flags&^flagHashed, loads[at])
	}
	return all, nil
}

func (m moby) Table() (table, error) {
	file, err := os.Open("/proc/thread-self/net/ip_vs")
	if err != nil {
		return nil, fmt.Errorf("list destinations: %w", err)
	}
	defer file.Close()
	list, err := ipvslist.Read(file)
	return newTable(list), err
}

func (m moby) Exists(at serviceKey) (bool, error) {
	_, err := m.handle.GetService(mobyService(at, scheduling{}))
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for the virtual server %s: %w", at, err)
	}
	return true, nil
}

func (m moby) SetTimeouts(t timeouts) error {
	if err := m.handle.SetConfig(&ipvs.Config{TimeoutTCP: t.TCP, TimeoutTCPFin: t.TCPFin, TimeoutUDP: t.UDP}); err != nil {
		return fmt.Errorf("set ipvs timeouts: %w", err)
	}
	return nil
}

// ignore returns err, or nil if err is done, which means that the change was made already.
func ignore(err error, done unix.Errno) error {
	if errors.Is(err, done) {
		return nil
	}
	return err
}

// mobyService converts a key to moby's type.
func mobyService(at serviceKey, h scheduling) *ipvs.Service {
	s := &ipvs.Service{
		FWMark:        at.mark,
		SchedName:     h.scheduler,
		Flags:         h.flags(),
		Timeout:       h.affinity,
		Netmask:       0xffffffff, // affinity is per address
		AddressFamily: unix.AF_INET,
	}
	if at.family == sdk.IPv6 {
		s.AddressFamily, s.Netmask = unix.AF_INET6, 128
	}
	if at.mark == 0 {
		s.Protocol = protocolNumber(at.protocol)
		s.Address, s.Port = net.IP(at.addr.Addr().AsSlice()), at.addr.Port()
	}
	return s
}

// keyOf is the inverse of mobyService.
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
		if protocolNumber(p) == s.Protocol && ok {
			at.protocol, at.addr = p, netip.AddrPortFrom(addr, s.Port)
			return at, nil
		}
	}
	return at, fmt.Errorf("a virtual server of protocol %d", s.Protocol)
}

// protocolNumber returns the IP protocol number.
func protocolNumber(p sdk.Protocol) uint16 {
	switch p {
	case sdk.UDP:
		return unix.IPPROTO_UDP
	case sdk.SCTP:
		return unix.IPPROTO_SCTP
	}
	return unix.IPPROTO_TCP
}

// Send sends up to maxSteps steps, and returns the kernel's answer for each. The kernel handles them in order,
// answers for each one that fails, and acknowledges the last.
func (m moby) Send(steps []step) ([]error, error) {
	var messages []byte
	places := make(map[uint32]int, len(steps)) // by sequence number
	for i, s := range steps {
		r := m.message(s)
		if i == len(steps)-1 {
			r.Flags |= unix.NLM_F_ACK
		}
		places[r.Seq] = i
		messages = append(messages, r.Serialize()...)
	}
	if err := unix.Sendto(m.socket.GetFd(), messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send to ipvs: %w", err)
	}
	for answers := make([]error, len(steps)); ; {
		received, _, err := m.socket.Receive()
		if err != nil {
			return nil, fmt.Errorf("read ipvs' answer: %w", err)
		}
		for _, answer := range received {
			i, asked := places[answer.Header.Seq]
			if !asked || answer.Header.Type != unix.NLMSG_ERROR || len(answer.Data) < 4 {
				continue // a late answer to an earlier call that timed out
			}
			if code := int32(binary.NativeEndian.Uint32(answer.Data)); code != 0 {
				answers[i] = unix.Errno(-code)
			}
			if i == len(answers)-1 {
				return answers, nil
			}
		}
	}
}

// Attribute numbers of include/uapi/linux/ip_vs.h.
const (
	attrService, attrDest = 1, 2

	svcFamily, svcProtocol, svcAddr, svcPort, svcMark, svcScheduler, svcFlags, svcTimeout, svcNetmask = 1, 2, 3, 4, 5, 6, 7, 8, 9

	destAddr, destPort, destMethod, destWeight, destUpper, destLower = 1, 2, 3, 4, 5, 6
)

// message encodes a step.
func (m moby) message(s step) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(int(m.family), unix.NLM_F_REQUEST)
	r.AddData(&nl.Genlmsg{Command: uint8(s.verb), Version: 1})
	r.AddData(serviceAttr(mobyService(s.service, s.scheduling)))
	if s.dest.IsValid() {
		r.AddData(destAttr(s))
	}
	return r
}

func serviceAttr(svc *ipvs.Service) *nl.RtAttr {
	a := nl.NewRtAttr(attrService, nil)
	a.AddRtAttr(svcFamily, nl.Uint16Attr(svc.AddressFamily))
	if svc.FWMark != 0 {
		a.AddRtAttr(svcMark, nl.Uint32Attr(svc.FWMark))
	} else {
		a.AddRtAttr(svcProtocol, nl.Uint16Attr(svc.Protocol))
		a.AddRtAttr(svcAddr, svc.Address)
		a.AddRtAttr(svcPort, binary.BigEndian.AppendUint16(nil, svc.Port))
	}
	a.AddRtAttr(svcScheduler, nl.ZeroTerminated(svc.SchedName))
	a.AddRtAttr(svcFlags, append(nl.Uint32Attr(svc.Flags), 0xff, 0xff, 0xff, 0xff)) // a mask of valid flags follows
	a.AddRtAttr(svcTimeout, nl.Uint32Attr(svc.Timeout))
	a.AddRtAttr(svcNetmask, nl.Uint32Attr(svc.Netmask))
	return a
}

func destAttr(s step) *nl.RtAttr {
	a := nl.NewRtAttr(attrDest, nil)
	a.AddRtAttr(destAddr, s.dest.Addr().AsSlice())
	a.AddRtAttr(destPort, binary.BigEndian.AppendUint16(nil, s.dest.Port()))
	a.AddRtAttr(destMethod, nl.Uint32Attr(ipvs.ConnectionFlagMasq))
	a.AddRtAttr(destWeight, nl.Uint32Attr(uint32(s.weight)))
	a.AddRtAttr(destUpper, nl.Uint32Attr(0))
	a.AddRtAttr(destLower, nl.Uint32Attr(0))
	return a
}
