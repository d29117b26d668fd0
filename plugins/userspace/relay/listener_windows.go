// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"unsafe"

	"golang.org/x/sys/windows"
)

// A winListener is a socket that listens. Two processes may have it (see HandOver), so it is in no
// completion port, as those of package net are: it would be in that of one process for good.
type winListener struct {
	relay *Relay
	at    netip.AddrPort

	mu     sync.Mutex // guards what follows, and the socket from being used when it is closed
	socket windows.Handle
	poller *poller  // nil: it was not started
	accept acceptor // set with poller
	ended  bool     // the socket is closed
}

// listenTCP opens a listener.
func (r *Relay) listenTCP(_ context.Context, at netip.AddrPort) (listener, error) {
	l, err := listenRaw(at)
	if err != nil {
		return nil, fmt.Errorf("listen tcp %s: %w", at, err)
	}
	return r.listenerOf(l, at), nil
}

func (r *Relay) listenerOf(socket windows.Handle, at netip.AddrPort) *winListener {
	return &winListener{relay: r, at: at, socket: socket}
}

// listenRaw binds a socket and listens. No other program may bind a port of a socket that listens,
// unless it is of the same user and asks for that with SO_REUSEADDR.
func listenRaw(at netip.AddrPort) (windows.Handle, error) {
	family, addr := int32(windows.AF_INET6), windows.Sockaddr(&windows.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
	if at.Addr().Is4() {
		family, addr = windows.AF_INET, &windows.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()}
	}
	socket, err := windows.WSASocket(family, windows.SOCK_STREAM, windows.IPPROTO_TCP, nil, 0, windows.WSA_FLAG_OVERLAPPED|windows.WSA_FLAG_NO_HANDLE_INHERIT)
	if err != nil {
		return windows.InvalidHandle, err
	}
	if family == windows.AF_INET6 {
		err = windows.SetsockoptInt(socket, windows.IPPROTO_IPV6, windows.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = windows.Bind(socket, addr)
	}
	if err == nil {
		err = windows.Listen(socket, windows.SOMAXCONN)
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

func (l *winListener) start(accept acceptor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poller != nil || l.ended {
		return
	}
	p, err := l.relay.loops.get(l.relay)
	if err != nil {
		l.relay.log.Load().Warn("cannot accept", "at", "tcp "+l.at.String(), "err", err)
		return
	}
	l.poller, l.accept = p, accept
	if !p.add(l, l.socket) {
		l.end()
	}
}

// end closes the socket. The caller holds mu.
func (l *winListener) end() {
	l.ended = true
	_ = windows.Closesocket(l.socket)
}

// Close closes the socket. What was accepted by it is counted then.
func (l *winListener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil
	}
	if l.poller != nil {
		l.poller.remove(l)
	}
	l.end()
	return nil
}

func (l *winListener) port() uint16 {
	switch name := nameOf(l.socket).(type) {
	case *windows.SockaddrInet4:
		return uint16(name.Port)
	case *windows.SockaddrInet6:
		return uint16(name.Port)
	}
	return 0
}

func (l *winListener) alive() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return net.ErrClosed
	}
	_, err := windows.Getsockname(l.socket)
	return err
}

// manyAtOnce is how many connections one listener accepts before the others come next.
const manyAtOnce = 64

// acceptAll accepts the connections that there are. Another process may have been faster. Its error
// is one that may pass.
func (l *winListener) acceptAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := 0; n < manyAtOnce && !l.ended; n++ {
		socket, from, err := acceptRaw(l.socket)
		switch {
		case errors.Is(err, windows.WSAEWOULDBLOCK):
			return nil
		case errors.Is(err, windows.WSAECONNRESET):
			continue // it has gone before it was accepted
		case err != nil:
			return err
		}
		conn, err := newWinConn(socket, from)
		if err != nil {
			l.relay.log.Load().Debug("a connection ends as it begins", "at", "tcp "+l.at.String(), "err", err)
			_ = windows.Closesocket(socket)
			continue
		}
		l.relay.receive(conn, l.accept)
	}
	return nil
}

// acceptRaw accepts a connection.
func acceptRaw(listening windows.Handle) (windows.Handle, *windows.RawSockaddrAny, error) {
	from := new(windows.RawSockaddrAny)
	size := int32(unsafe.Sizeof(*from))
	got, _, err := procAccept.Call(uintptr(listening), uintptr(unsafe.Pointer(from)), uintptr(unsafe.Pointer(&size)))
	socket := windows.Handle(got)
	if socket == windows.InvalidHandle {
		return socket, nil, fmt.Errorf("accept: %w", err)
	}
	return socket, from, nil
}

// HandOver returns what process pid opens the same Socket by, with Adopt, while this process has
// it. This process keeps it until Close: meanwhile a client comes to either. So no client is
// refused, and those that wait in the kernel wait on. It is for TCP alone, and may be called at any
// time; it fails where s is closed, or pid is no process that this one may give a socket to.
func HandOver(s Socket, pid uint32) ([]byte, error) {
	tcp, ok := s.(*tcpSocket)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	l := tcp.listener.(*winListener)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return nil, net.ErrClosed
	}
	var info windows.WSAProtocolInfo
	if err := windows.WSADuplicateSocket(l.socket, pid, &info); err != nil {
		return nil, fmt.Errorf("hand a socket over to process %d: %w", pid, err)
	}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info))...), nil
}

// Adopt opens the Socket at an address that another process has handed over to this one. It fails
// where handed is nothing that HandOver returned for this process, or of another port.
func (r *Relay) Adopt(at netip.AddrPort, handed []byte) (Socket, error) {
	var info windows.WSAProtocolInfo
	if len(handed) != int(unsafe.Sizeof(info)) {
		return nil, fmt.Errorf("adopt a socket: it is described in %d bytes, and not in %d", len(handed), unsafe.Sizeof(info))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&info)), unsafe.Sizeof(info)), handed)
	const asDescribed = -1 // FROM_PROTOCOL_INFO
	socket, err := windows.WSASocket(asDescribed, asDescribed, asDescribed, &info, 0, windows.WSA_FLAG_OVERLAPPED|windows.WSA_FLAG_NO_HANDLE_INHERIT)
	if err != nil {
		return nil, fmt.Errorf("adopt a socket: %w", err)
	}
	l := r.listenerOf(socket, at)
	if err := setBlocking(socket, false); err != nil {
		l.Close()
		return nil, fmt.Errorf("adopt a socket: %w", err)
	}
	if l.port() != at.Port() {
		l.Close()
		return nil, fmt.Errorf("adopt a socket: it is not the one at %s", at)
	}
	return &tcpSocket{server: server{relay: r, at: at}, listener: l}, nil
}
