// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"io"
	"net"
	"sync"
)

// A gate passes connections on to a target, until it is cut.
type gate struct {
	target string

	mu    sync.Mutex // guards what follows
	doors []io.Closer
	shut  bool
}

// open passes on what comes to l.
func (g *gate) open(l net.Listener) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = false
	g.doors = append(g.doors, l)
	go func() { // ends when l is closed
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go g.pass(conn) // ends with the connection
		}
	}()
}

func (g *gate) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp4", g.target)
	if err != nil {
		return
	}
	defer to.Close()
	if !g.keep(from, to) {
		return
	}
	done := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() { // ends when either side closes
			_, _ = io.Copy(pair[0], pair[1])
			done <- struct{}{}
		}()
	}
	<-done
}

// keep notes connections to be cut; not if they are already.
func (g *gate) keep(list ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, conn := range list {
		g.doors = append(g.doors, conn)
	}
	return !g.shut
}

// cut ends all that goes through, and lets nothing in.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shut = true
	for _, door := range g.doors {
		door.Close()
	}
	g.doors = nil
}
