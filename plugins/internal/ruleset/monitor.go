// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

const (
	// LookEvery is how often it is looked at what costs nothing: what the monitor heard,
	// and how large tables are.
	LookEvery = 500 * time.Millisecond

	// MaxLooks is for how many looks another process may be at work on the tables before
	// what it removed is put back.
	MaxLooks = 4

	manyHeard = 1000 // more than is kept of what was heard before it is looked at
)

// A Monitor hears what other processes remove from nft's tables. It has one goroutine, which
// Close ends. It is safe for concurrent use.
//
// A process that empties tables mostly does so in several steps, and would fail on what is
// put back between them. So a monitor tells what it heard only in a moment in which nothing
// changes, though it does not wait long for one.
//
// A nil Monitor hears nothing: legacy's kernel tells nothing.
type Monitor struct {
	events  *iptables.Events
	running sync.WaitGroup

	mu    sync.Mutex // guards what follows
	heard []iptables.Commit
	first time.Time // when the first of heard came
	last  time.Time // and the last

	// pids are those of the programs that wrote for us last. Mostly their changes are not
	// heard, but they may be when a program was quicker than Started.
	pids [256]int
	next int
}

// Listen begins to hear losses that matter.
func Listen(matters func(iptables.Gone) bool) (*Monitor, error) {
	events, err := iptables.Listen()
	if err != nil {
		return nil, err
	}
	m := &Monitor{events: events}
	events.Matters = matters
	m.running.Go(m.listen)
	return m, nil
}

// listen keeps what is heard, until the events are closed.
func (m *Monitor) listen() {
	for {
		c, err := m.events.Next()
		if err != nil {
			return
		}
		m.hear(c)
	}
}

func (m *Monitor) hear(c iptables.Commit) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isOurs(c) {
		return
	}
	if len(m.heard) >= manyHeard {
		m.heard = []iptables.Commit{{Missed: true}}
	}
	m.last = time.Now()
	if len(m.heard) == 0 {
		m.first = m.last
	}
	m.heard = append(m.heard, c)
}

// Take is what was heard since the last call, once nothing has been added for a moment.
func (m *Monitor) Take() []iptables.Commit {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if time.Since(m.last) < LookEvery && time.Since(m.first) < MaxLooks*LookEvery {
		return nil
	}
	heard := slices.DeleteFunc(m.heard, m.isOurs) // a program of ours may have begun while it was heard
	m.heard = nil
	return heard
}

// Started is to be told of each program that writes for us, so that it is not heard.
func (m *Monitor) Started(pid int) {
	if m == nil {
		return
	}
	m.mu.Lock()
	m.pids[m.next%len(m.pids)] = pid
	m.next++
	m.mu.Unlock()
	_ = m.events.Ignore(pid) // else it is heard, and known by its number
}

// Ended is to be told when such a program has ended.
func (m *Monitor) Ended() {
	if m != nil {
		_ = m.events.Ignore(0)
	}
}

// isOurs reports whether a program of ours did c. The caller has the mutex.
func (m *Monitor) isOurs(c iptables.Commit) bool {
	return c.Port != 0 && slices.Contains(m.pids[:], int(c.Port))
}

// Stop ends hearing, without waiting for the goroutine. It may be called twice.
func (m *Monitor) Stop() {
	if m != nil {
		_ = m.events.Close() // nothing was written to it
	}
}

// Close ends hearing, and waits for the goroutine.
func (m *Monitor) Close() {
	if m != nil {
		m.Stop()
		m.running.Wait()
	}
}
