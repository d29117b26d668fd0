// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/track"
)

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
