// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/moby/ipvs"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A pipe takes many steps about virtual services to the kernel in few system calls. The
// kernel does them one behind the other, speaks up where one fails, and says when it
// is through with the last; the library would send one, and wait.
type pipe struct {
	fd     int
	family uint16 // the kernel's number for IPVS
}

// silence is after how long the kernel is not going to answer.
const answerTimeout = 30 * time.Second

// openPipe opens one in the network namespace of the calling thread.
func openPipe() (*pipe, error) {
	generic, err := netlink.GenlFamilyGet("IPVS")
	if err != nil {
		return nil, fmt.Errorf("find ipvs in the kernel: %w", err)
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_GENERIC)
	if err != nil {
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	wait := unix.NsecToTimeval(answerTimeout.Nanoseconds())
	err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait)
	if err = errors.Join(err, unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open netlink: %w", err)
	}
	return &pipe{fd: fd, family: generic.ID}, nil
}

func (p *pipe) Close() error { return unix.Close(p.fd) }

// send sends up to atOnce steps, and returns what the kernel says of each.
func (p *pipe) send(steps []step) ([]error, error) {
	var messages []byte
	places := make(map[uint32]int, len(steps)) // by sequence number
	for i, s := range steps {
		m := p.message(s)
		if i == len(steps)-1 {
			m.Flags |= unix.NLM_F_ACK
		}
		places[m.Seq] = i
		messages = append(messages, m.Serialize()...)
	}
	if err := unix.Sendto(p.fd, messages, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("send to ipvs: %w", err)
	}
	answers := make([]error, len(steps))
	for buf := make([]byte, nl.RECEIVE_BUFFER_SIZE); ; {
		n, _, err := unix.Recvfrom(p.fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read ipvs' answer: %w", err)
		}
		through, err := parseAnswers(answers, places, buf[:n])
		if through || err != nil {
			return answers, err
		}
	}
}

// parseAnswers notes what the kernel says of steps, and reports whether it is through with
// them.
func parseAnswers(answers []error, places map[uint32]int, data []byte) (through bool, err error) {
	messages, err := syscall.ParseNetlinkMessage(data)
	if err != nil {
		return false, fmt.Errorf("hear of ipvs: %w", err)
	}
	for _, m := range messages {
		i, asked := places[m.Header.Seq]
		if !asked || m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
			continue // of a call before, which was given up
		}
		if code := int32(binary.NativeEndian.Uint32(m.Data)); code != 0 {
			answers[i] = unix.Errno(-code)
		}
		through = through || i == len(answers)-1
	}
	return through, nil
}

// What the kernel calls things, in include/uapi/linux/ip_vs.h.
const (
	cmdNewService, cmdSetService, cmdDelService, cmdNewDest, cmdSetDest, cmdDelDest = 1, 2, 3, 5, 6, 7

	attrService, attrDest = 1, 2

	svcFamily, svcProtocol, svcAddr, svcPort, svcMark, svcScheduler, svcFlags, svcTimeout, svcNetmask = 1, 2, 3, 4, 5, 6, 7, 8, 9

	destAddr, destPort, destMethod, destWeight, destUpper, destLower = 1, 2, 3, 4, 5, 6
)

var commands = map[verb]uint8{
	addService: cmdNewService, setService: cmdSetService, removeService: cmdDelService,
	addDest: cmdNewDest, weighDest: cmdSetDest, removeDest: cmdDelDest,
}

// message is a step as the kernel takes it.
func (p *pipe) message(s step) *nl.NetlinkRequest {
	m := nl.NewNetlinkRequest(int(p.family), unix.NLM_F_REQUEST)
	m.AddData(&nl.Genlmsg{Command: commands[s.verb], Version: 1})
	m.AddData(serviceAttr(mobyService(s.service, s.scheduling)))
	switch s.verb {
	case addDest, weighDest, removeDest:
		m.AddData(destAttr(s))
	}
	return m
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
	a.AddRtAttr(svcFlags, append(nl.Uint32Attr(svc.Flags), 0xff, 0xff, 0xff, 0xff)) // and which of them count
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
