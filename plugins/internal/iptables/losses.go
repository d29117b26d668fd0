// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

const (
	// LookEvery is how often it is looked at what costs nothing: what was heard of losses,
	// and how large tables are.
	LookEvery = 500 * time.Millisecond

	// MaxLooks is for how many looks another process may be at work on the tables before
	// what it removed is put back.
	MaxLooks = 4

	manyHeard = 1000 // more than is kept of what was heard before it is looked at
)

// Losses are what other processes remove from nft's tables, for both families, while this
// process is the writer. Legacy's kernel tells nothing. They have one goroutine, which Hold
// begins and ends; Hold and Take are called by one goroutine at a time.
//
// A process that empties tables mostly does so in several steps, and would fail on what is
// put back between them. So what was heard is told only in a moment in which nothing
// changes, though such a moment is not waited for long.
type Losses struct {
	Log     *slog.Logger
	Matters func(Gone) bool // says which losses are told of

	events  *Events // nil: nothing is heard
	running sync.WaitGroup
	untaken map[sdk.Family][]Commit // what was heard, and not taken for a family yet

	mu    sync.Mutex // guards what follows
	heard []Commit
	first time.Time // when the first of heard came
	last  time.Time // and the last

	// pids are those of the programs that wrote for us last. Mostly their changes are not
	// heard, but they may be when a program was quicker than Started.
	pids [256]int
	next int
}

// Hold begins to hear what is removed from the tables of tool when there is a lock, and ends
// it when there is none.
func (l *Losses) Hold(tool Tool) {
	switch {
	case tool.Hold == nil:
		l.close()
		return
	case tool.Backend != NFT || l.events != nil:
		return
	}
	events, err := Listen()
	if err != nil {
		l.Log.Warn("cannot listen to changes of the tables", "err", err)
		return
	}
	events.Matters = l.Matters
	l.events, l.heard, l.untaken = events, nil, make(map[sdk.Family][]Commit)
	l.running.Go(func() { l.listen(events) })
}

func (l *Losses) close() {
	if l.events != nil {
		_ = l.events.Close() // nothing was written to it
		l.running.Wait()
		l.events = nil
	}
}

// listen keeps what is heard, until the events are closed.
func (l *Losses) listen(events *Events) {
	for {
		c, err := events.Next()
		if err != nil {
			return
		}
		l.hear(c)
	}
}

func (l *Losses) hear(c Commit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isOurs(c) {
		return
	}
	if len(l.heard) >= manyHeard {
		l.heard = []Commit{{Missed: true}}
	}
	l.last = time.Now()
	if len(l.heard) == 0 {
		l.first = l.last
	}
	l.heard = append(l.heard, c)
}

// Take is what was heard since it was last asked for a family, once nothing has been added
// for a moment.
func (l *Losses) Take(of sdk.Family) []Commit {
	if l.events == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if time.Since(l.last) >= LookEvery || time.Since(l.first) >= MaxLooks*LookEvery {
		heard := slices.DeleteFunc(l.heard, l.isOurs) // a program of ours may have begun while it was heard
		for _, f := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
			l.untaken[f] = append(l.untaken[f], heard...)
		}
		l.heard = nil
	}
	mine := l.untaken[of]
	delete(l.untaken, of)
	return mine
}

// Started is to be told of each program that writes for this process, so that it is not
// heard.
func (l *Losses) Started(pid int) {
	if l.events == nil {
		return
	}
	l.mu.Lock()
	l.pids[l.next%len(l.pids)] = pid
	l.next++
	l.mu.Unlock()
	_ = l.events.Ignore(pid) // else it is heard, and known by its number
}

// Ended is to be told when such a program has ended.
func (l *Losses) Ended() {
	if l.events != nil {
		_ = l.events.Ignore(0)
	}
}

// isOurs reports whether a program of ours did c. The caller has the mutex.
func (l *Losses) isOurs(c Commit) bool {
	return c.Port != 0 && slices.Contains(l.pids[:], int(c.Port))
}
