// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// Attach connects to a plugin that runs already: one that a former host launched,
// by the Handle it kept, or one that listens for itself ([At]). It checks that it
// is the very process that is meant, not one that got its pid or its socket since;
// where that process has ended, the error is os.ErrProcessDone.
func Attach(ctx context.Context, h Handle) (*Remote, error) {
	remote, err := attach(ctx, h)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", h, err)
	}
	return remote, nil
}

func attach(ctx context.Context, h Handle) (*Remote, error) {
	if h.PID == 0 {
		return attachListener(ctx, h)
	}
	p, err := watch(h.PID, h.Start)
	if err != nil {
		return nil, err
	}
	return attachProcess(ctx, h, p)
}

// attachListener attaches to whichever process is behind the socket.
func attachListener(ctx context.Context, h Handle) (*Remote, error) {
	pid, err := listener(ctx, h)
	if err != nil {
		return nil, err
	}
	p, err := watch(pid, 0)
	if pid == 0 || errors.Is(err, os.ErrProcessDone) { // here nobody sees it: /proc may be mounted with hidepid
		return attachConn(ctx, h)
	}
	if err != nil {
		return nil, err
	}
	h.PID = pid
	return attachProcess(ctx, h, p)
}

func attachProcess(ctx context.Context, h Handle, p *process) (*Remote, error) {
	h.Start = p.start
	remote, err := greeted(ctx, h, p)
	if err != nil {
		p.forget()
		return nil, err
	}
	return remote, nil
}

// listener is the process behind a socket, which must be this user's or root's.
// Zero: the kernel has no name for it here.
func listener(ctx context.Context, h Handle) (int, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, h.Network, h.Address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if h.Network != "unix" {
		return 0, nil
	}
	if err := trusted(conn); err != nil {
		return 0, err
	}
	p, err := peerOf(conn)
	return p.pid, err
}

// attachConn attaches to a process that cannot be seen from here, as in another
// container. It counts as ended when the connection does.
func attachConn(ctx context.Context, h Handle) (*Remote, error) {
	p := newProcess(0)
	remote, err := greeted(ctx, h, p)
	if err != nil {
		return nil, err
	}
	watching, cancel := context.WithCancel(context.Background())
	p.forget = cancel
	go p.followConn(watching, remote.conn)
	return remote, nil
}

// followConn ends with the connection, or when forget is called.
func (p *process) followConn(ctx context.Context, conn *grpc.ClientConn) {
	for state := conn.GetState(); ; state = conn.GetState() {
		if state != connectivity.Ready {
			p.exit = Exit{Code: -1, Stderr: []string{"the connection to it was lost"}}
			close(p.exited)
			return
		}
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}
