// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestHandedOver: while one relay hands its socket over to another one no client is refused, and
// one that comes in between waits.
func TestHandedOver(t *testing.T) {
	front, back := at(1, 8000), at(2, 8000)
	endpoint(t, back, nil)
	web := svc("web", "cluster-ip "+front, back)
	first := serve(t, web)
	var stop atomic.Bool
	var clients sync.WaitGroup
	defer func() { stop.Store(true); clients.Wait() }() // before the relays end
	for range 4 {
		clients.Go(func() {
			for !stop.Load() {
				if _, err := ask(front); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	key := listen{sdk.TCP, addrPortOf(front)}
	for range 5 {
		second := serve(t)
		adopted := handOver(t, first, second, key)
		first.drain(key)
		first.carries(0)
		second.sockets[key] = adopted
		second.set(web)
		finds(t, front, back)
		if second.Counts().Accepted == 0 {
			t.Error("another relay has accepted the client")
		}
		first = second
	}
}

// handOver is what two processes do.
func handOver(t *testing.T, from, to *rig, key listen) Socket {
	t.Helper()
	handed, err := HandOver(from.sockets[key], uint32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := to.Adopt(key.addr, handed)
	if err != nil {
		t.Fatal(err)
	}
	return adopted
}

// TestHandOverFails where the socket is closed, and where what was handed over is no such socket.
func TestHandOverFails(t *testing.T) {
	front := at(1, 8000)
	s := serve(t, svc("web", "cluster-ip "+front, at(2, 8000)))
	socket := s.sockets[listen{sdk.TCP, addrPortOf(front)}]
	handed, err := HandOver(socket, uint32(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Adopt(addrPortOf(at(1, 8001)), handed); err == nil {
		t.Error("it is of another port, and was adopted")
	}
	if _, err := s.Adopt(addrPortOf(front), handed[1:]); err == nil {
		t.Error("it is too short, and was adopted")
	}
	socket.Close()
	if _, err := HandOver(socket, uint32(os.Getpid())); err == nil {
		t.Error("a closed socket was handed over")
	}
	if _, err := ask(front); !wasRefused(err) {
		t.Errorf("what was refused is open: %v", err)
	}
}
