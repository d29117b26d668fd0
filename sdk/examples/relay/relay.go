// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

const (
	reusePort      = 15                    // SO_REUSEPORT, which package syscall does not define
	connectTimeout = 3 * time.Second       // to one endpoint, before the next one is tried
	acceptRest     = 10 * time.Millisecond // a listener that is being closed accepts until no connection arrives for this long,
	acceptMost     = time.Second           // but at most for this long
)

// A relay owns the sockets. Except for its connections, everything is guarded by the
// dataplane's mutex, which callers of its methods must hold.
type relay struct {
	services  map[sdk.Name]sdk.Service // what is served, or would be in the role Active
	listeners map[netip.AddrPort]*listener
	open      atomic.Int64 // number of open connections
}

// A listener accepts connections to one frontend, on a goroutine that ends when it is closed.
type listener struct {
	owner     sdk.Name
	socket    *net.TCPListener
	endpoints atomic.Pointer[[]sdk.Endpoint]
	done      chan struct{} // closed when that goroutine has ended
}

func newRelay() *relay {
	return &relay{services: make(map[sdk.Name]sdk.Service), listeners: make(map[netip.AddrPort]*listener)}
}

// set replaces the Service of that name by svc, and returns the previous addresses, to be
// passed to prune. If it returns an error, svc cannot be served, and the previous value
// remains. It does not listen for a Service without endpoints, so callers are refused.
func (r *relay) set(svc sdk.Service, active bool) (former []netip.AddrPort, err error) {
	opened := make(map[netip.AddrPort]*net.TCPListener)
	for _, f := range svc.Frontends {
		if _, there := r.listeners[f.Addr]; there || len(svc.Cluster) == 0 {
			continue
		}
		socket, err := listen(svc.Name.Network(), f.Addr)
		if err != nil {
			for _, other := range opened {
				_ = other.Close()
			}
			return nil, fmt.Errorf("listen on %s: %w", f.Addr, err)
		}
		if !active {
			_ = socket.Close() // before a swap the host must know that the address is available
			continue
		}
		opened[f.Addr] = socket
	}
	former = addresses(r.services[svc.Name])
	r.services[svc.Name] = svc
	for at, socket := range opened {
		l := &listener{socket: socket, done: make(chan struct{})}
		l.endpoints.Store(&svc.Cluster)
		r.listeners[at] = l
		go r.accept(l) // ends with closeThese
	}
	for _, at := range addresses(svc) {
		if l, there := r.listeners[at]; there {
			l.owner = svc.Name
			l.endpoints.Store(&svc.Cluster)
		}
	}
	return former, nil
}

// remove removes a Service, and returns its addresses, to be passed to prune.
func (r *relay) remove(name sdk.Name) []netip.AddrPort {
	former := addresses(r.services[name])
	delete(r.services, name)
	return former
}

// prune closes listeners of former addresses that no Service needs any more. Call it after all
// others are set, so that an address which moves from one Service to another keeps its
// listener.
func (r *relay) prune(former []netip.AddrPort) {
	var unwanted []netip.AddrPort
	for _, at := range former {
		if l, there := r.listeners[at]; there && !slices.Contains(addresses(r.services[l.owner]), at) {
			unwanted = append(unwanted, at)
		}
	}
	slices.SortFunc(unwanted, netip.AddrPort.Compare)
	r.closeThese(slices.Compact(unwanted))
}

// addresses returns the addresses at which to listen for svc.
func addresses(svc sdk.Service) (all []netip.AddrPort) {
	for _, f := range svc.Frontends {
		if len(svc.Cluster) > 0 {
			all = append(all, f.Addr)
		}
	}
	return all
}

// closeAll closes all listeners. Connections continue.
func (r *relay) closeAll() {
	var all []netip.AddrPort
	for at := range r.listeners {
		all = append(all, at)
	}
	r.closeThese(all)
}

// closeThese closes listeners. They first accept the connections in their queue, because the
// kernel would reset those.
func (r *relay) closeThese(these []netip.AddrPort) {
	for _, at := range these {
		_ = r.listeners[at].socket.SetDeadline(time.Now().Add(acceptRest)) // cannot fail for an open socket
	}
	for _, at := range these {
		<-r.listeners[at].done
		delete(r.listeners, at)
	}
}

// listen opens a socket with SO_REUSEPORT, so that another process can listen too, such as the
// one to swap to.
func listen(network string, at netip.AddrPort) (*net.TCPListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		control := raw.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, reusePort, 1) })
		return errors.Join(control, err)
	}}
	l, err := config.Listen(context.Background(), network, at.String())
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener), nil
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
				carry(conn, *l.endpoints.Load())
			}()
		case errors.Is(err, os.ErrDeadlineExceeded):
			// After the deadline AcceptTCP fails even if connections wait.
			if end.IsZero() {
				end = time.Now().Add(acceptMost)
			} else if time.Since(began) >= acceptRest || began.After(end) {
				return
			}
			_ = l.socket.SetDeadline(time.Now().Add(acceptRest)) // cannot fail for an open socket
		case errors.Is(err, net.ErrClosed):
			return
		default: // for example too many open files
			time.Sleep(acceptRest)
		}
	}
}

// carry relays one connection to a random endpoint, and to another one if that does not answer.
func carry(conn *net.TCPConn, endpoints []sdk.Endpoint) {
	defer conn.Close()
	for _, i := range rand.Perm(len(endpoints)) {
		server, err := net.DialTimeout("tcp", endpoints[i].Addr.String(), connectTimeout)
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
