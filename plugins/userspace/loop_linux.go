// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"net"
	"runtime"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// A loop carries its share of all connections in one goroutine: it asks the kernel
// which sockets can go on, and has each go as far as it can without waiting.
//
//	       ┌────────────── wait ◀──────────────┐
//	       ▼                                   │
//	door: take in ──▶ link: look for an endpoint, then carry both ways
//
// A connection stays with one loop, so nothing of it is locked. While it waits it
// has two descriptors and a few hundred bytes, and no goroutine.
type loop struct {
	relay *relay
	all   *loops
	poll  *poller
	slots slots
	links atomic.Int32 // how many it has, for those who share them out

	again []*link // gave way to others, and go on before the loop waits
	clock
	talk  []byte // where bytes are between a read and a write
	pipes pipes

	mu    sync.Mutex // guards all below
	asked []func()   // by other goroutines
	over  bool       // it takes no more requests
}

// loops are one for each processor that Go uses.
type loops struct {
	mu   sync.Mutex // guards all below
	all  []*loop
	turn int
}

// talkSize is the most that is read at once.
const talkSize = 64 << 10

// any is one of them, each in turn; they are started when there are none.
func (ls *loops) any(r *relay) (*loop, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for len(ls.all) < runtime.GOMAXPROCS(0) {
		poll, err := newPoller()
		if err != nil {
			return nil, err
		}
		l := &loop{relay: r, all: ls, poll: poll, talk: make([]byte, talkSize)}
		if !r.crowd.enter(l) {
			poll.close()
			return nil, net.ErrClosed
		}
		ls.all = append(ls.all, l)
		go l.run()
	}
	return ls.inTurn(), nil
}

// next is one of them, each in turn, for one of them to ask.
func (ls *loops) next() *loop {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.inTurn()
}

// inTurn is next, for who holds mu.
func (ls *loops) inTurn() *loop {
	ls.turn++
	return ls.all[ls.turn%len(ls.all)]
}

// forget them: they have ended.
func (ls *loops) forget() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.all = nil
}

// listenBest opens a listener at p.
func (r *relay) listenBest(_ context.Context, p place) (listener, error) {
	l, err := r.loops.any(r)
	if err != nil {
		return nil, err
	}
	fd, err := listenAt(p)
	if err != nil {
		return nil, err
	}
	return &door{loop: l, at: p, fd: fd, pause: pause{log: r, at: p}}, nil
}

// ask has the loop do f soon. False: it has ended.
func (l *loop) ask(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return false
	}
	l.asked = append(l.asked, f)
	if len(l.asked) == 1 {
		l.poll.ring()
	}
	return true
}

// Close ends the loop and all that it carries, soon.
func (l *loop) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.over {
		l.over = true
		l.poll.ring() // with mu held, because end closes the poller
	}
	return nil
}

// run is the life of the loop. It ends with Close, which the crowd calls.
func (l *loop) run() {
	defer l.relay.crowd.leave(l)
	defer l.end()
	for l.serveAsked() {
		events, err := l.wait()
		if err != nil {
			l.relay.log.Load().Error("cannot wait for connections; giving up those there are", "err", err)
			return
		}
		for i := range events {
			l.tell(&events[i])
		}
		l.goOn()
		l.lookAtClock()
	}
}

// wait for events, unless somebody gave way and could go on.
func (l *loop) wait() ([]unix.EpollEvent, error) {
	if len(l.again) > 0 {
		return l.poll.now()
	}
	return l.poll.wait(l.wake)
}

func (l *loop) tell(e *unix.EpollEvent) {
	t := ticket{e.Fd, e.Pad}
	if t == bellTicket {
		l.poll.silence()
		return
	}
	if w := l.slots.find(t); w != nil {
		w.happened(e.Events)
	}
}

// serveAsked does what others have asked for. False: the loop is to end.
func (l *loop) serveAsked() bool {
	l.mu.Lock()
	asked, over := l.asked, l.over
	l.asked = nil
	l.mu.Unlock()
	for _, f := range asked {
		f()
	}
	return !over
}

// goOn has those go on who gave way.
func (l *loop) goOn() {
	again := l.again
	l.again = nil
	for _, k := range again {
		k.queued = false
		k.goOn()
	}
}

// end closes all that the loop has.
func (l *loop) end() {
	l.Close()
	l.serveAsked() // a connection that was handed over is closed too
	for _, s := range l.slots.all {
		if s.who != nil {
			s.who.end()
		}
	}
	l.pipes.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.poll.close()
}

// watch has w told of the events of fd.
func (l *loop) watch(fd int, events uint32, w watcher) (ticket, error) {
	t := l.slots.put(w)
	if err := l.poll.add(fd, events, t); err != nil {
		l.slots.drop(t)
		return ticket{}, err
	}
	return t, nil
}
