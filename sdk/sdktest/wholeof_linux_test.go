// SPDX-License-Identifier: Apache-2.0

package sdktest_test

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestWholeOfConforms: a function with the limit own-addresses-only and a list conforms, including
// swaps.
func TestWholeOfConforms(t *testing.T) {
	d := sdk.Description{
		Name: "function", Version: "0.1.0",
		Features: []sdk.Feature{sdk.FeatureIPv4, sdk.FeatureIPv6},
		Limits: []sdk.Limit{
			sdk.LimitNoDrop, sdk.LimitNoClientAddress, sdk.LimitAffinityPerFrontend,
			sdk.LimitOwnAddressesOnly, sdk.LimitDiesWithProcess,
		},
	}
	sdktest.Conform(t, sdktest.InProcess(d, func() sdk.Dataplane {
		f := &function{doors: make(map[netip.AddrPort]*door)}
		return sdk.WholeOf(d, sdk.Parts{Serve: f.serve, List: f.list})
	}))
}

// A function relays TCP from each frontend to a random endpoint, and to another if that does not answer.
type function struct {
	mu      sync.Mutex // guards what follows: list runs beside serve
	doors   map[netip.AddrPort]*door
	refuses []sdk.Served // without endpoints: nothing listens there, so callers are refused
}

// A door listens on one frontend, on a goroutine that ends with the listener.
type door struct {
	listener *net.TCPListener
	served   atomic.Pointer[sdk.Served]
	done     chan struct{}
}

func (f *function) serve(ctx context.Context, _ sdk.Setup, s sdk.State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var failed sdk.Failures
	wanted := make(map[netip.AddrPort]bool)
	f.refuses = nil
	for name, svc := range s.Services {
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, frontend := range svc.Frontends {
			if len(svc.Cluster) == 0 {
				f.refuses = append(f.refuses, sdk.Served{Name: name, Frontend: frontend})
				continue
			}
			wanted[frontend.Addr] = true
			if err := f.open(name, frontend, svc.Cluster); err != nil {
				failed = append(failed, sdk.Failure{Name: name, Err: err})
				break
			}
		}
	}
	var closing []*door
	for at, d := range f.doors {
		if !wanted[at] && !s.Kept[d.served.Load().Name] {
			_ = d.listener.SetDeadline(time.Now().Add(20 * time.Millisecond)) // what waits in it is accepted
			closing = append(closing, d)
			delete(f.doors, at)
		}
	}
	for _, d := range closing {
		<-d.done
	}
	if failed != nil {
		return failed
	}
	return nil
}

func (f *function) open(name sdk.Name, frontend sdk.Frontend, endpoints []sdk.Endpoint) error {
	served := &sdk.Served{Name: name, Frontend: frontend}
	for _, ep := range endpoints {
		served.Endpoints = append(served.Endpoints, ep.Addr)
	}
	if d, there := f.doors[frontend.Addr]; there {
		d.served.Store(served)
		return nil
	}
	const reusePort = 15 // SO_REUSEPORT: the process that is swapped to listens beside
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		return errors.Join(c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, reusePort, 1) }), err)
	}}
	l, err := config.Listen(context.Background(), name.Network(), frontend.Addr.String())
	if err != nil {
		return err
	}
	d := &door{listener: l.(*net.TCPListener), done: make(chan struct{})}
	d.served.Store(served)
	f.doors[frontend.Addr] = d
	go d.accept()
	return nil
}

func (d *door) accept() {
	defer close(d.done)
	defer d.listener.Close()
	for {
		conn, err := d.listener.AcceptTCP()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err == nil {
			go carry(conn, d.served.Load().Endpoints) // ends with the connection
		}
	}
}

func carry(conn *net.TCPConn, endpoints []netip.AddrPort) {
	defer conn.Close()
	for _, i := range rand.Perm(len(endpoints)) {
		server, err := net.DialTimeout("tcp", endpoints[i].String(), 3*time.Second)
		if err != nil {
			continue
		}
		go func() { _, _ = io.Copy(server, conn); _ = server.(*net.TCPConn).CloseWrite() }() // ends with the caller's half
		_, _ = io.Copy(conn, server)
		_ = server.Close()
		return
	}
	_ = conn.SetLinger(0)
}

func (f *function) list(context.Context) (all []sdk.Served, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.doors {
		all = append(all, *d.served.Load())
	}
	return append(all, f.refuses...), nil
}
