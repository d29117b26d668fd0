// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"sync"

	"github.com/vishvananda/netlink"
)

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
