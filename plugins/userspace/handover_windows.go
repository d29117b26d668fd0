// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"sync"
	"time"

	"github.com/pointsman/pointsman/internal/pipe"
)

// A handover has the process that serves close its sockets when another one is to serve in its
// place. On Windows a port belongs to one socket, so the next process can listen only then; a client
// that connects between the two is refused. Connections that were accepted go on. The process that
// serves listens on a pipe: whoever connects there wants the ports. Like all of a process it is
// guarded by the frame.
type handover struct {
	path string // of the pipe
	give func(context.Context) error

	end func() // ends what offer began; nil: nothing

	mu  sync.Mutex // guards has, and keeps run from making the pipe while take asks by it
	has bool       // this process has the pipe
}

const (
	handoverTimeout = 3 * time.Second        // of a request; the host gives a call 5 s
	offerPeriod     = 100 * time.Millisecond // between two tries to make the pipe
)

// handsOver sets the pipe's name. Processes that keep their ledger in one folder serve one node.
func (p *plugin) handsOver(dir string) {
	sum := sha256.Sum256([]byte(dir))
	p.handover.path = fmt.Sprintf("%spointsman-userspace-%x", pipe.Prefix, sum[:10])
	p.handover.give = func(ctx context.Context) error {
		return p.Beside(ctx, func() error {
			for _, f := range p.way.families {
				f.(*direct).giveUpPorts() // no rules lead to sockets here
			}
			return nil
		})
	}
}

// offer makes the pipe and answers there until withdraw. Its goroutine ends then.
func (h *handover) offer() {
	if h.end != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { h.run(ctx) })
	h.end = func() { cancel(); running.Wait() }
}

// withdraw ends that, and waits for it: a request that waits for the frame is given up.
func (h *handover) withdraw() {
	if h.end != nil {
		h.end()
		h.end = nil
	}
}

// run has the pipe until ctx ends. As long as another process has it, which is the one that served
// before, run tries again.
func (h *handover) run(ctx context.Context) {
	for ctx.Err() == nil {
		h.mu.Lock()
		l, err := pipe.Listen(h.path)
		h.has = err == nil
		h.mu.Unlock()
		if err == nil {
			h.serve(ctx, l)
			h.mu.Lock()
			h.has = false
			h.mu.Unlock()
		}
		_ = wait(ctx, offerPeriod)
	}
}

// serve gives the ports up for each process that connects, and closes the connection then.
func (h *handover) serve(ctx context.Context, l net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		timed, cancel := context.WithTimeout(ctx, handoverTimeout)
		if h.give(timed) == nil {
			_, _ = conn.Write([]byte{1}) // if it cannot be told, it tries again
		}
		cancel()
		_ = conn.Close()
	}
}

// take has another process that serves close its sockets. Where no process serves it does nothing.
func (h *handover) take(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.has {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	conn, err := pipe.Dial(ctx, h.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait until another process has closed its sockets: %w", err)
	}
	return nil
}
