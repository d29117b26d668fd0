// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"errors"
	"fmt"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// loops is the one poller of a Relay, for as long as it runs.
type loops struct {
	mu     sync.Mutex // guards poller
	poller *poller
}

// get returns the poller. If there is none, it starts it.
func (ls *loops) get(r *Relay) (*poller, error) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.poller != nil {
		return ls.poller, nil
	}
	wake, err := newWake()
	if err != nil {
		return nil, fmt.Errorf("make a socket to wake a poller by: %w", err)
	}
	p := &poller{relay: r, wake: wake, listeners: make(map[*winListener]windows.Handle)}
	if !r.group.add(p) {
		_ = windows.Closesocket(wake)
		return nil, errStopped
	}
	go p.run() // ends with the group
	ls.poller = p
	return p, nil
}

var errStopped = errors.New("the relay is being stopped")

// forget has the next listener start another one.
func (ls *loops) forget() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.poller = nil
}

// A poller waits for connections at all listeners of a Relay at once, in one thread. A socket that
// is closed meanwhile may be another one by now: nothing is accepted by it, for its listener knows.
type poller struct {
	relay *Relay

	mu        sync.Mutex // guards what follows; its holder takes no lock of a listener
	listeners map[*winListener]windows.Handle
	closing   bool           // run is to end
	wake      windows.Handle // a datagram to it has run look at listeners and closing
}

// add has l accept. If the group is being stopped it is false.
func (p *poller) add(l *winListener, socket windows.Handle) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return false
	}
	p.listeners[l] = socket
	p.poke()
	return true
}

// remove has l accept nothing from now on, once the one that has l's lock gives it up.
func (p *poller) remove(l *winListener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.listeners, l)
}

// Close has run end, and with it every listener.
func (p *poller) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closing {
		p.closing = true
		p.poke()
	}
	return nil
}

// poke wakes run. A datagram that cannot be sent finds others before it. The caller holds mu.
func (p *poller) poke() { _ = windows.Sendto(p.wake, []byte{0}, 0, nameOf(p.wake)) }

// run accepts until the group ends.
func (p *poller) run() {
	defer p.relay.group.remove(p)
	defer p.end()
	backoff := backoff{relay: p.relay, at: "all addresses of TCP"}
	for {
		by, fds := p.polled()
		if fds == nil {
			return
		}
		err := poll(fds)
		if fds[0].got != 0 {
			empty(fds[0].socket)
		}
		for i, l := range by {
			if fds[i+1].got != 0 {
				err = errors.Join(err, l.acceptAll())
			}
		}
		if err != nil {
			backoff.wait(p.relay.group.context(), err)
			continue
		}
		backoff.reset()
	}
}

// polled are the listeners, and what the system is asked to wait for: the first is wake. Nil: run
// is to end.
func (p *poller) polled() (by []*winListener, fds []pollFD) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return nil, nil
	}
	by, fds = make([]*winListener, 0, len(p.listeners)), make([]pollFD, 1, len(p.listeners)+1)
	fds[0] = pollFD{socket: p.wake, wanted: pollIn}
	for l, socket := range p.listeners {
		by, fds = append(by, l), append(fds, pollFD{socket: socket, wanted: pollIn})
	}
	return by, fds
}

// end closes all that there is. There is nothing to poke any more.
func (p *poller) end() {
	p.mu.Lock()
	listeners := p.listeners
	p.listeners = nil
	_ = windows.Closesocket(p.wake)
	p.mu.Unlock()
	for l := range listeners {
		l.Close()
	}
}

// A pollFD is the system's WSAPOLLFD.
type pollFD struct {
	socket      windows.Handle
	wanted, got int16
}

const (
	pollIn      = 0x100 // POLLRDNORM
	pollTimeout = time.Second
)

var (
	winsock    = windows.NewLazySystemDLL("ws2_32.dll")
	procPoll   = winsock.NewProc("WSAPoll")
	procAccept = winsock.NewProc("accept")
	procIoctl  = winsock.NewProc("ioctlsocket")
)

// poll waits until one of fds has something, and no longer than pollTimeout: nothing depends on wake alone.
func poll(fds []pollFD) error {
	n, _, err := procPoll.Call(uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(pollTimeout/time.Millisecond))
	if int32(n) < 0 {
		return fmt.Errorf("WSAPoll: %w", err)
	}
	return nil
}

// setBlocking says whether calls of the socket that are not overlapped wait.
func setBlocking(socket windows.Handle, blocking bool) error {
	const fionbio = 0x8004667e
	var not uint32
	if !blocking {
		not = 1
	}
	if r, _, err := procIoctl.Call(uintptr(socket), fionbio, uintptr(unsafe.Pointer(&not))); int32(r) != 0 {
		return fmt.Errorf("ioctlsocket: %w", err)
	}
	return nil
}

// newWake makes a socket of UDP that receives from itself alone.
func newWake() (windows.Handle, error) {
	socket, err := windows.WSASocket(windows.AF_INET, windows.SOCK_DGRAM, windows.IPPROTO_UDP, nil, 0, windows.WSA_FLAG_OVERLAPPED|windows.WSA_FLAG_NO_HANDLE_INHERIT)
	if err != nil {
		return windows.InvalidHandle, err
	}
	err = windows.Bind(socket, &windows.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	if err == nil {
		err = windows.Connect(socket, nameOf(socket))
	}
	if err == nil {
		err = setBlocking(socket, false)
	}
	if err != nil {
		_ = windows.Closesocket(socket)
		return windows.InvalidHandle, err
	}
	return socket, nil
}

// nameOf returns where a socket is bound; nil: nowhere.
func nameOf(socket windows.Handle) windows.Sockaddr {
	name, _ := windows.Getsockname(socket) // the caller's own call fails then
	return name
}

// empty reads what there is.
func empty(wake windows.Handle) {
	buf := make([]byte, 16)
	for {
		if _, _, err := windows.Recvfrom(wake, buf, 0); err != nil {
			return
		}
	}
}
