// SPDX-License-Identifier: Apache-2.0

/*
Package sockets finds processes of this node that listen where a Service is reached: on
a node port, or at an address of the node that a Service has as well. The dataplane
catches the packets before the process does, so that one of the two does not get what
is meant for it; and nothing else would say so.

	tracker: node ports, frontends at node addresses ─┐
	/proc/net/{tcp,tcp6,udp,udp6}: what is listened on ┴▶ Collide ─▶ whose? ─▶ event, warning

It looks when the tracker's ports have changed, and slowly in between. Sockets of the
host and of its plugins are no collisions.
*/
package sockets

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

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

const (
	soon   = 2 * time.Second  // after a change of the ports
	slowly = 30 * time.Second // else: processes come and go
)

// A Watch follows the collisions of a tracker's ports.
type Watch struct {
	tracker *track.Tracker
	own     func() []int // the processes whose sockets are no collisions; one it cannot know is 0
	report  func(Collision)

	changes uint64           // of the ports, when they were last compared
	checked time.Time        // when that was
	owner   map[uint64]owner // of sockets, by inode

	mu    sync.Mutex // guards found
	found []Collision
}

// New returns a watch that calls report for each collision when it begins. Nothing happens
// before Run.
func New(t *track.Tracker, own func() []int, report func(Collision)) *Watch {
	return &Watch{tracker: t, own: own, report: report, owner: make(map[uint64]owner)}
}

// Look lists the collisions of a tracker's ports, once. own is as New has it.
func Look(t *track.Tracker, own func() []int) []Collision {
	w := New(t, own, func(Collision) {})
	w.look()
	return w.Now()
}

// Now lists the collisions that there are.
func (w *Watch) Now() []Collision {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.found)
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(soon)
	defer tick.Stop()
	for {
		if w.tracker.HostPortChanges() != w.changes || time.Since(w.checked) >= slowly {
			w.look()
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// look compares once. Where the sockets cannot be read nothing is said of them.
func (w *Watch) look() {
	ports, changes := w.tracker.HostPorts()
	w.changes, w.checked = changes, time.Now()
	var found []Collision
	if len(ports) > 0 {
		found = w.foreign(Collide(ports, listening(), w.tracker.Node().NodePorts))
	}
	slices.SortFunc(found, func(a, b Collision) int { return strings.Compare(a.String(), b.String()) })
	w.mu.Lock()
	before := w.found
	w.found = found
	w.mu.Unlock()
	for _, c := range found {
		if !slices.ContainsFunc(before, func(b Collision) bool { return b.Port == c.Port && b.Socket == c.Socket }) {
			w.report(c)
		}
	}
}

// foreign returns those with sockets of other processes. Whose a socket is is found out
// once.
func (w *Watch) foreign(all []Collision) []Collision {
	inodes := make(map[uint64]bool)
	for _, c := range all {
		inodes[c.Socket.Inode] = true
	}
	for inode := range w.owner {
		if !inodes[inode] {
			delete(w.owner, inode) // or the number means another one by now
		}
		delete(inodes, inode)
	}
	if len(inodes) > 0 {
		for inode, o := range owners(inodes, w.own()) {
			w.owner[inode] = o
		}
	}
	for i := range all {
		all[i].Process = w.owner[all[i].Socket.Inode].name
	}
	return slices.DeleteFunc(all, func(c Collision) bool { return w.owner[c.Socket.Inode].ours })
}

// An owner is the process that has a socket.
type owner struct {
	ours bool // or may be
	name string
}
