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
	reusePort      = 15                    // SO_REUSEPORT, for which package syscall has no name
	connectTimeout = 3 * time.Second       // of one endpoint, before another one is tried
	acceptRest     = 10 * time.Millisecond // a listener that is closed accepts until none has come for so long,
	acceptMost     = time.Second           // and no longer than that
)

// A relay has the sockets. All but its connections belongs to the dataplane, under whose mutex its
// methods are called.
type relay struct {
	services  map[sdk.Name]sdk.Service // what is served, or in another role than Active would be
	listeners map[netip.AddrPort]*listener
	open      atomic.Int64 // connections
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

// set serves svc instead of what was served under its name, and returns the addresses of that, to be given
// to prune. An error says that svc cannot be served, and then what was served goes on. What has no
// endpoint is not listened for: its callers are refused.
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
			_ = socket.Close() // that it can listen is what a host asks before it swaps
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

// remove serves a Service no longer, and returns its addresses, to be given to prune.
func (r *relay) remove(name sdk.Name) []netip.AddrPort {
	former := addresses(r.services[name])
	delete(r.services, name)
	return former
}

// prune closes those listeners of former addresses that no Service wants any more. It is called when all
// others are set, so that an address which moves from one Service to another keeps its listener.
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

// addresses returns where svc is listened for.
func addresses(svc sdk.Service) (all []netip.AddrPort) {
	for _, f := range svc.Frontends {
		if len(svc.Cluster) > 0 {
			all = append(all, f.Addr)
		}
	}
	return all
}

// closeAll ends every listener. Connections go on.
func (r *relay) closeAll() {
	var all []netip.AddrPort
	for at := range r.listeners {
		all = append(all, at)
	}
	r.closeThese(all)
}

// closeThese ends listeners, which accept first what waits in them: the kernel would reset it.
func (r *relay) closeThese(these []netip.AddrPort) {
	for _, at := range these {
		_ = r.listeners[at].socket.SetDeadline(time.Now().Add(acceptRest)) // it fails for none that is open
	}
	for _, at := range these {
		<-r.listeners[at].done
		delete(r.listeners, at)
	}
}

// listen opens a socket beside which other processes may listen, as the one that is swapped to.
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

// accept begins to relay each connection that comes, until some time after the listener's deadline.
func (r *relay) accept(l *listener) {
	defer close(l.done)
	defer l.socket.Close()
	var end time.Time // of accepting at all; zero: the listener is not closed
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
			// Once the deadline is over, AcceptTCP fails also if connections wait.
			if end.IsZero() {
				end = time.Now().Add(acceptMost)
			} else if time.Since(began) >= acceptRest || began.After(end) {
				return
			}
			_ = l.socket.SetDeadline(time.Now().Add(acceptRest)) // it fails for none that is open
		case errors.Is(err, net.ErrClosed):
			return
		default: // such as too many open files
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
	_ = conn.SetLinger(0) // so that the caller sees a reset, as of a port that is closed
}

// both copies in both ways, until both have ended or one is broken.
func both(a, b *net.TCPConn) {
	var ways sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		ways.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				_ = a.Close()
				_ = b.Close()
			}
			_ = way[1].CloseWrite() // it fails for one that is broken
		})
	}
	ways.Wait()
}
