// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk"
)

const (
	connectTimeout = 3 * time.Second       // to one endpoint, before the next one is tried
	acceptRest     = 10 * time.Millisecond // a listener that is being closed accepts until no connection arrives for this long,
	acceptMost     = time.Second           // but at most for this long
)

// A relay listens on the frontends of Services and relays connections to their endpoints.
type relay struct {
	mu        sync.Mutex // guards listeners and refuses, because list runs beside serve
	listeners map[netip.AddrPort]*listener
	refuses   []sdk.Served // frontends without endpoints: nothing listens there, so callers are refused
	open      atomic.Int64 // number of open connections
}

// A listener accepts connections to one frontend, on a goroutine that ends when it is closed.
type listener struct {
	socket *net.TCPListener
	served atomic.Pointer[sdk.Served]
	done   chan struct{} // closed when that goroutine has ended
}

func newDataplane() sdk.Dataplane {
	r := &relay{listeners: make(map[netip.AddrPort]*listener)}
	report := func() sdk.Report { return sdk.Report{Flows: int(r.open.Load())} } // a host waits for them while draining
	return sdk.WholeOf(description, sdk.Parts{Serve: r.serve, List: r.list, Report: report})
}

// serve opens and closes listeners until they are those of the Services, which are none in roles
// other than Active. It opens before it closes, so that an address which moves from one Service to
// another always has a listener. Connections continue.
func (r *relay) serve(ctx context.Context, _ sdk.Setup, state sdk.State) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var failed sdk.Failures
	wanted, kept := make(map[netip.AddrPort]bool), make(map[sdk.Name]bool)
	r.refuses = nil
	for name, svc := range state.Services {
		if err := ctx.Err(); err != nil {
			return err // the host sends everything again
		}
		if err := r.listen(svc); err != nil {
			failed, kept[name] = append(failed, sdk.Failure{Name: name, Err: err}), true
			continue
		}
		for _, f := range svc.Frontends {
			if wanted[f.Addr] = len(svc.Cluster) > 0; !wanted[f.Addr] {
				r.refuses = append(r.refuses, sdk.Served{Name: name, Frontend: f})
			}
		}
	}
	r.close(func(at netip.AddrPort, owner sdk.Name) bool { return wanted[at] || kept[owner] || state.Kept[owner] })
	if failed != nil {
		return failed // all other Services are served
	}
	return nil
}

// listen opens the listeners that a Service with endpoints lacks, and changes the endpoints of the
// others. After an error nothing has changed. It opens sockets with SO_REUSEPORT, so that another
// process can listen too, such as the one to swap to.
func (r *relay) listen(svc sdk.Service) error {
	if len(svc.Cluster) == 0 {
		return nil
	}
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		control := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
		return errors.Join(control, err)
	}}
	served := sdk.Served{Name: svc.Name}
	for _, ep := range svc.Cluster {
		served.Endpoints = append(served.Endpoints, ep.Addr)
	}
	opened := make(map[netip.AddrPort]*listener)
	for _, f := range svc.Frontends {
		if r.listeners[f.Addr] != nil {
			continue
		}
		socket, err := config.Listen(context.Background(), svc.Name.Network(), f.Addr.String())
		if err != nil {
			for _, l := range opened {
				_ = l.socket.Close()
			}
			return err
		}
		opened[f.Addr] = &listener{socket: socket.(*net.TCPListener), done: make(chan struct{})}
	}
	maps.Copy(r.listeners, opened)
	for _, f := range svc.Frontends {
		served.Frontend = f
		r.listeners[f.Addr].served.Store(new(served))
	}
	for _, l := range opened {
		go r.accept(l) // ends with close
	}
	return nil
}

// close closes all listeners but those to keep. They first accept the connections in their queue,
// because the kernel would reset those. A client whose SYN is dropped sends it again a second later,
// to a socket that listens then.
func (r *relay) close(keep func(netip.AddrPort, sdk.Name) bool) {
	var closing []*listener
	for at, l := range r.listeners {
		if !keep(at, l.served.Load().Name) {
			_ = dropSYN(l.socket)                                // if it fails, a client that connects right now may be reset
			_ = l.socket.SetDeadline(time.Now().Add(acceptRest)) // cannot fail for an open socket
			closing = append(closing, l)
			delete(r.listeners, at)
		}
	}
	for _, l := range closing {
		<-l.done
	}
}

// dropSYN makes a listening socket drop packets with SYN and without ACK. Byte 13 of the TCP
// header has these flags.
func dropSYN(socket *net.TCPListener) error {
	const syn, ack, whole = 0x02, 0x10, 0xffffffff
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},
		{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: syn | ack},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: syn, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: 0},
		{Code: unix.BPF_RET | unix.BPF_K, K: whole},
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	control := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	})
	return errors.Join(control, err)
}

// list returns what is served in the role Active. A host compares that with what it sent.
func (r *relay) list(context.Context) (all []sdk.Served, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.listeners {
		all = append(all, *l.served.Load())
	}
	return append(all, r.refuses...), nil
}

// accept relays connections, until some time after the listener's deadline.
func (r *relay) accept(l *listener) {
	defer close(l.done)
	defer l.socket.Close()
	var end time.Time // when to stop accepting; zero while the listener is not being closed
	for {
		began := time.Now()
		conn, err := l.socket.AcceptTCP()
		switch {
		case err == nil:
			r.open.Add(1)
			go func() { // ends with the connection
				defer r.open.Add(-1)
				carry(conn, l.served.Load().Endpoints)
			}()
		case errors.Is(err, os.ErrDeadlineExceeded):
			// After the deadline AcceptTCP fails even if connections wait.
			if end.IsZero() {
				end = time.Now().Add(acceptMost)
			} else if time.Since(began) >= acceptRest || began.After(end) {
				return
			}
			_ = l.socket.SetDeadline(time.Now().Add(acceptRest)) // cannot fail for an open socket
		default: // for example too many open files
			time.Sleep(acceptRest)
		}
	}
}

// carry relays one connection to a random endpoint, and to another one if that does not answer.
func carry(conn *net.TCPConn, endpoints []netip.AddrPort) {
	defer conn.Close()
	for _, i := range rand.Perm(len(endpoints)) {
		server, err := net.DialTimeout("tcp", endpoints[i].String(), connectTimeout)
		if err != nil {
			continue
		}
		defer server.Close()
		both(conn, server.(*net.TCPConn))
		return
	}
	_ = conn.SetLinger(0) // the caller sees a reset, as from a closed port
}

// both copies in both directions, until both have ended or one has failed.
func both(a, b *net.TCPConn) {
	var ways sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		ways.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				_ = a.Close()
				_ = b.Close()
			}
			_ = way[1].CloseWrite() // fails if the connection is broken
		})
	}
	ways.Wait()
}
