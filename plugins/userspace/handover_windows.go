// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/pointsman/pointsman/internal/pipe"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// A handover is how a process that is to serve gets the sockets of the one that serves. On Windows
// a port is one socket's: where two bind it by SO_REUSEADDR, which of them a client comes to is
// not defined, and another program could do the same. But two processes can have the
// socket. The one that serves listens on a pipe, and gives the successor a handle of each socket that
// it asks for (WSADuplicateSocket). Like all of a process it is guarded by the frame.
type handover struct {
	path string // of the pipe
	give func(ctx context.Context, r request) ([]handed, error)

	end func() // ends what offer began; nil: nothing

	mu  sync.Mutex // guards has, and the pipe from being made while this process asks by it
	has bool       // this process has the pipe
}

// A request is for the sockets at these places, all at once: a swap has few seconds.
type request struct {
	PID    uint32 // of the process that asks
	Places []spot
}

// An answer has those that there are.
type answer struct {
	Handed []handed
	Error  string
}

// handed is a socket of TCP, or says that the port of UDP is free now.
type handed struct {
	spot
	Socket []byte
}

// A spot is a place, in JSON.
type spot struct {
	Protocol sdk.Protocol
	Addr     netip.AddrPort
}

const (
	handoverTimeout = 3 * time.Second        // of a request, and of a process that connects and asks nothing; the host gives a call 5 s
	offerPeriod     = 100 * time.Millisecond // between two tries to have the pipe
)

// handsOver says by which pipe: processes that keep their ledger in one folder are those of one
// node.
func (p *plugin) handsOver(dir string) {
	sum := sha256.Sum256([]byte(dir))
	p.handover.path = fmt.Sprintf("%spointsman-userspace-%x", pipe.Prefix, sum[:10])
	p.handover.give = func(ctx context.Context, r request) (all []handed, err error) {
		err = p.Beside(ctx, func() (err error) {
			for _, f := range p.way.families {
				if s := f.core(); s.writes {
					some, failed := s.handOver(r)
					all, err = append(all, some...), errors.Join(err, failed)
				}
			}
			return err
		})
		return all, err
	}
}

// handOver does so with the sockets of TCP, and closes those of UDP: their datagrams can be
// divided between two processes by nothing.
func (s *sockets) handOver(r request) (all []handed, err error) {
	for _, a := range r.Places {
		p := place{a.Protocol, a.Addr}
		socket := s.open[p]
		switch {
		case socket == nil:
		case p.protocol == sdk.TCP:
			info, failed := relay.HandOver(socket, r.PID)
			if failed != nil {
				err = errors.Join(err, failed)
				continue
			}
			all = append(all, handed{a, info})
		default:
			delete(s.open, p)
			s.touched[p] = true // opened again, if this process is to serve again
			socket.Close()
			all = append(all, handed{a, nil})
		}
	}
	return all, err
}

// offer hands over what is asked for, until withdraw. Its goroutine ends then.
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

// run has the pipe until ctx ends. While another process has it, that is the predecessor, which
// has not let go of its sockets yet.
func (h *handover) run(ctx context.Context) {
	for ctx.Err() == nil {
		if l := h.listen(); l != nil {
			h.serve(ctx, l)
			h.mu.Lock()
			h.has = false
			h.mu.Unlock()
		}
		select {
		case <-ctx.Done():
		case <-time.After(offerPeriod):
		}
	}
}

// listen makes the pipe. Nil: another process has it, or none can be made now.
func (h *handover) listen() net.Listener {
	h.mu.Lock()
	defer h.mu.Unlock()
	l, err := pipe.Listen(h.path)
	if err != nil {
		return nil
	}
	h.has = true
	return l
}

// serve answers one process after the other.
func (h *handover) serve(ctx context.Context, l net.Listener) {
	defer context.AfterFunc(ctx, func() { _ = l.Close() })()
	defer l.Close()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		h.answer(ctx, conn)
	}
}

// answer answers the one request of a process.
func (h *handover) answer(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	var r request
	if err := json.NewDecoder(conn).Decode(&r); err != nil {
		return
	}
	var a answer
	all, err := h.give(ctx, r)
	if a.Handed = all; err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(conn).Encode(a)
}

// take opens the sockets of TCP at these places that another process serves by, and has it close those
// of UDP. Where no process serves there are none. It does all it can, and says what failed.
func (h *handover) take(ctx context.Context, r *relay.Relay, places []place) (map[place]relay.Socket, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(places) == 0 || h.has {
		return nil, nil
	}
	asked := request{PID: uint32(os.Getpid())}
	for _, p := range places {
		asked.Places = append(asked.Places, spot{p.protocol, p.addr})
	}
	a, err := h.ask(ctx, asked)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if a.Error != "" {
		err = errors.Join(err, errors.New(a.Error))
	}
	sockets := make(map[place]relay.Socket)
	for _, given := range a.Handed {
		if given.Protocol != sdk.TCP {
			continue
		}
		s, failed := r.Adopt(given.Addr, given.Socket)
		if failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		sockets[place{given.Protocol, given.Addr}] = s
	}
	return sockets, err
}

// ask asks the process that serves.
func (h *handover) ask(ctx context.Context, r request) (a answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, handoverTimeout)
	defer cancel()
	conn, err := pipe.Dial(ctx, h.path)
	if err != nil {
		return answer{}, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(handoverTimeout))
	return a, errors.Join(json.NewEncoder(conn).Encode(r), json.NewDecoder(conn).Decode(&a))
}
