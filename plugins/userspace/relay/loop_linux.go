// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A loop carries its share of all TCP connections in one goroutine: it asks the kernel
// which sockets are ready, and advances each as far as it can without waiting.
//
//	           ┌────────────── wait ◀──────────────┐
//	           ▼                                   │
//	listener: accept ──▶ pair: connect to an endpoint, then carry both ways
//
// A connection stays with one loop, so nothing of it is locked. While it waits it has
// two descriptors and a few hundred bytes, and no goroutine.
type loop struct {
	relay *Relay
	poll  *poller

	watchers  map[token]watcher
	lastToken token // none is used twice: an event of a watcher that is gone, still on its way, finds none

	pairs atomic.Int32 // how many it has; other loops read it to share them out

	runnable []*pair // yielded to others, and advance before the loop waits again
	timers   timers
	scratch  []byte // where bytes are between a read and a write
	pipes    pipes

	mu     sync.Mutex // guards all below
	posted []func()   // by other goroutines, to run in the loop
	closed bool       // it takes no more of them
}

// loops are one for each processor that Go uses.
type loops struct {
	mu   sync.Mutex // guards all below
	all  []*loop
	next int
}

// scratchSize is the most that is read at once.
const scratchSize = 64 << 10

// get returns the loops in turn. If there are none, it starts them.
func (ls *loops) get(r *Relay) (*loop, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for len(ls.all) < runtime.GOMAXPROCS(0) {
		poll, err := newPoller()
		if err != nil {
			return nil, err
		}
		l := &loop{relay: r, poll: poll, watchers: make(map[token]watcher), scratch: make([]byte, scratchSize)}
		if !r.group.add(l) {
			poll.close()
			return nil, net.ErrClosed
		}
		ls.all = append(ls.all, l)
		go l.run() // ends with Close, which the group calls
	}
	ls.next++
	return ls.all[ls.next%len(ls.all)], nil
}

// forget says that all have ended.
func (ls *loops) forget() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = nil
}

// listenTCP opens a listener.
func (r *Relay) listenTCP(_ context.Context, at netip.AddrPort) (listener, error) {
	l, err := r.loops.get(r)
	if err != nil {
		return nil, err
	}
	fd, err := listenAt(at)
	if err != nil {
		return nil, err
	}
	return &loopListener{loop: l, at: at, fd: fd, backoff: backoff{relay: r, at: "tcp " + at.String()}}, nil
}

// post has the loop call f soon. It is false if the loop has ended.
func (l *loop) post(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.posted = append(l.posted, f)
	if len(l.posted) == 1 {
		l.poll.wake()
	}
	return true
}

// Close ends the loop and all that it carries, soon.
func (l *loop) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.poll.wake() // with mu held, because end closes the poller
	}
	return nil
}

// run is the life of the loop.
func (l *loop) run() {
	defer l.relay.group.remove(l)
	defer l.end()
	for l.runPosted() {
		events, err := l.wait()
		if err != nil {
			l.relay.log.Load().Error("cannot wait for connections; closing those there are", "err", err)
			return
		}
		for i := range events {
			l.dispatch(&events[i])
		}
		l.runRunnable()
		if !l.timers.wakeAt.IsZero() {
			l.timers.run(time.Now())
		}
	}
}

// wait returns events, at once if a pair has yielded and can go on.
func (l *loop) wait() ([]unix.EpollEvent, error) {
	if len(l.runnable) > 0 {
		return l.poll.now()
	}
	return l.poll.wait(l.timers.wakeAt)
}

func (l *loop) dispatch(e *unix.EpollEvent) {
	t := tokenOf(e)
	if t == wakeToken {
		l.poll.clearWake()
		return
	}
	if w := l.watchers[t]; w != nil {
		w.onEvent(e.Events)
	}
}

// runPosted calls what was posted. It is false when the loop is to end.
func (l *loop) runPosted() bool {
	l.mu.Lock()
	posted, closed := l.posted, l.closed
	l.posted = nil
	l.mu.Unlock()
	for _, f := range posted {
		f()
	}
	return !closed
}

// runRunnable advances the pairs that have yielded.
func (l *loop) runRunnable() {
	runnable := l.runnable
	l.runnable = nil
	for _, p := range runnable {
		p.queued = false
		p.advance()
	}
}

// end closes all that the loop has.
func (l *loop) end() {
	l.Close()
	l.runPosted() // a connection that was handed over is closed too
	for _, w := range l.watchers {
		w.onClose()
	}
	l.pipes.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poll.close()
}

// A watcher is called for what happens to its socket.
type watcher interface {
	onEvent(events uint32) // as epoll names them
	onClose()              // the loop ends
}

// watch reports the events of fd to w.
func (l *loop) watch(fd int, events uint32, w watcher) (token, error) {
	l.lastToken++
	if err := l.poll.add(fd, events, l.lastToken); err != nil {
		return 0, err
	}
	l.watchers[l.lastToken] = w
	return l.lastToken, nil
}

// timers are what a loop does at a time and not at an event. When the first is due it
// looks at all of them: there are few, because a pair leaves when its endpoint accepts.
type timers struct {
	wakeAt time.Time // when the first is due, or earlier. zero: never
	due    map[timed]time.Time
}

// A timed does something when its time has come.
type timed interface{ onTime() }

// timerGrain is how much later than due a timer may run, so that many are looked at
// together.
const timerGrain = 5 * time.Millisecond

// start has t called after wait.
func (ts *timers) start(t timed, wait time.Duration) {
	at := time.Now().Add(wait)
	if ts.due == nil {
		ts.due = make(map[timed]time.Time)
	}
	ts.due[t] = at
	ts.wake(at)
}

// wake wakes the loop at t, or earlier.
func (ts *timers) wake(t time.Time) {
	if ts.wakeAt.IsZero() || t.Before(ts.wakeAt) {
		ts.wakeAt = t
	}
}

func (ts *timers) stop(t timed) { delete(ts.due, t) }

// run calls what is due at now. It may start others.
func (ts *timers) run(now time.Time) {
	if now.Before(ts.wakeAt) {
		return
	}
	ts.wakeAt = time.Time{}
	for t, at := range ts.due {
		if now.Before(at) {
			ts.wake(at)
			continue
		}
		delete(ts.due, t)
		t.onTime()
	}
	if earliest := now.Add(timerGrain); !ts.wakeAt.IsZero() && ts.wakeAt.Before(earliest) {
		ts.wakeAt = earliest
	}
}
