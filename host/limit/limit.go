// SPDX-License-Identifier: Apache-2.0

/*
Package limit bounds the file descriptors that a host's own servers hold, so that whatever
can connect to them cannot keep the host from starting a plugin, reaching it, or writing
down its state.

A [Pool] shares out the descriptors of a process: some for listeners, some for connections,
and at least half for all else. A connection beyond the limit ends the one that has been
without activity for the longest time, so that a probe is answered however many idle
connections are open.
*/
package limit

import (
	"container/list"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
)

// The bounds on what a pool shares out.
const (
	forRest   = 64   // descriptors that are kept for all else, however few there are
	mostConns = 1024 // connections cost memory, too
	leastLeft = 16   // what is shared out, however few there are
)

// A Pool is the descriptors that servers may hold. It is safe for concurrent use.
type Pool struct {
	conns, ofServer int // the most connections of all servers, and of one
	listeners       int // the most of them
	descriptors     int // what the process may hold

	mu     sync.Mutex // guards what follows
	recent *list.List // of *conn, that of the longest inactivity first
	open   map[net.Conn]*list.Element
	of     map[*http.Server]int // connections
	held   int                  // listeners
}

// A conn is a connection of a server.
type conn struct {
	net.Conn
	server *http.Server
}

// NewPool returns a pool for a process that may hold so many descriptors.
func NewPool(descriptors int) *Pool {
	shared := max(leastLeft, min(descriptors/2, descriptors-forRest))
	conns := max(leastLeft/2, min(mostConns, shared/4))
	return &Pool{
		conns: conns, ofServer: conns / 2, listeners: shared - conns, descriptors: descriptors,
		recent: list.New(), open: make(map[net.Conn]*list.Element), of: make(map[*http.Server]int),
	}
}

// NewConns returns a pool of so many connections, for a server that has its listener elsewhere.
func NewConns(most int) *Pool {
	return &Pool{conns: most, ofServer: most, recent: list.New(), open: make(map[net.Conn]*list.Element), of: make(map[*http.Server]int)}
}

// Listen listens at an address, if there are descriptors left for that.
func (p *Pool) Listen(ctx context.Context, network, addr string) (net.Listener, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held >= p.listeners {
		return nil, fmt.Errorf("listen %s %s: of the %d descriptors that the host may hold (RLIMIT_NOFILE) %d are for listeners, and all of these are in use", network, addr, p.descriptors, p.listeners)
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	p.held++
	return &listener{Listener: l, pool: p}, nil
}

// A listener gives its descriptor back when it is closed.
type listener struct {
	net.Listener
	pool   *Pool
	closed sync.Once
}

// Accept makes room where the process has no descriptor left.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if Exhausted(err) {
		l.pool.evict(nil)
	}
	return c, err
}

func (l *listener) Close() error {
	err := l.Listener.Close()
	l.closed.Do(func() {
		l.pool.mu.Lock()
		defer l.pool.mu.Unlock()
		l.pool.held--
	})
	return err
}

// Bound makes a server, which has not begun, keep to the pool: alone it may have half of
// the connections.
func (p *Pool) Bound(s *http.Server) {
	s.ConnState = func(c net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			p.add(c, s)
		case http.StateActive, http.StateIdle:
			p.touch(c)
		case http.StateHijacked, http.StateClosed:
			p.remove(c)
		}
	}
}

// add counts a connection, and ends another one where there are too many.
func (p *Pool) add(c net.Conn, s *http.Server) {
	p.mu.Lock()
	p.open[c] = p.recent.PushBack(&conn{c, s})
	p.of[s]++
	ofServer, all := p.of[s] > p.ofServer, p.recent.Len() > p.conns
	p.mu.Unlock()
	switch {
	case ofServer:
		p.evict(s)
	case all:
		p.evict(nil)
	}
}

// evict ends the connection of a server, or of any, that has been without activity for the
// longest time.
func (p *Pool) evict(of *http.Server) {
	p.mu.Lock()
	var victim net.Conn
	for e := p.recent.Front(); e != nil && victim == nil; e = e.Next() {
		if c := e.Value.(*conn); of == nil || c.server == of {
			victim = c.Conn
		}
	}
	p.mu.Unlock()
	if victim != nil {
		p.remove(victim)
		_ = victim.Close() // the server notices
	}
}

// touch notes that there was activity on a connection.
func (p *Pool) touch(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.open[c]; e != nil {
		p.recent.MoveToBack(e)
	}
}

func (p *Pool) remove(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	e := p.open[c]
	if e == nil {
		return
	}
	s := p.recent.Remove(e).(*conn).server
	delete(p.open, c)
	if p.of[s]--; p.of[s] == 0 {
		delete(p.of, s)
	}
}
