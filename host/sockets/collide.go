// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// A Socket is one that takes what is sent to an address of this node.
type Socket struct {
	Addr     netip.AddrPort // unspecified: any address of its family
	Protocol sdk.Protocol
	Inode    uint64
}

func (s Socket) String() string { return fmt.Sprintf("%s/%s", s.Addr, s.Protocol) }

// A Collision is a port of a Service that a process listens on, too.
type Collision struct {
	Port    track.HostPort
	Socket  Socket
	Process string // "sshd, pid 12"; empty: not known
}

func (c Collision) String() string {
	process := c.Process
	if process == "" {
		process = "a process"
	}
	return fmt.Sprintf("%s of Service %s is also what %s listens on, at %s: what is sent there goes to the Service, not to the process", c.Port, c.Port.Service, process, c.Socket)
}

// Collide finds the sockets that listen where one of ports is. Node ports are taken at
// addresses within ranges.
func Collide(ports []track.HostPort, sockets []Socket, ranges []netip.Prefix) []Collision {
	byNumber := make(map[uint16][]Socket, len(sockets))
	for _, s := range sockets {
		byNumber[s.Addr.Port()] = append(byNumber[s.Addr.Port()], s)
	}
	var all []Collision
	for _, p := range ports {
		for _, s := range byNumber[p.Addr.Port()] {
			if s.Protocol == p.Protocol && meet(p.Addr.Addr(), s.Addr.Addr(), ranges) {
				all = append(all, Collision{Port: p, Socket: s})
			}
		}
	}
	return all
}

// meet reports whether a frontend and a socket may get the same packets. A dataplane
// may leave node ports at loopback addresses alone, so those do not count.
func meet(front, socket netip.Addr, ranges []netip.Prefix) bool {
	switch {
	case socket == netip.IPv6Unspecified(): // of both families, but for a rare option
		return true
	case front.Is4() != socket.Is4():
		return false
	case socket.IsUnspecified():
		return true
	case front.IsUnspecified():
		return !socket.IsLoopback() && slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(socket) })
	}
	return front == socket
}
