// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

const (
	// maxUpdate is the most a plugin takes in one message.
	maxUpdate = 4 << 20

	// window is how much of a stream may be on its way unread.
	window = 1 << 20

	// helloTimeout is how long a plugin may take to answer Hello, on a machine that is
	// just starting everything.
	helloTimeout = 5 * time.Second
)

// Dial connects to the plugin behind t, which must be that process; where its PID is zero,
// any that runs as this user or as root. Close closes the connection to it.
func Dial(ctx context.Context, t Target, process Process) (*Remote, error) {
	tried := &attempts{}
	conn, err := dial(t, process.PID(), tried)
	if err != nil {
		return nil, err
	}
	hello, err := greet(ctx, conn, t.Nonce)
	if err != nil {
		conn.Close()
		return nil, tried.explain(err)
	}
	t.Nonce = hello.Nonce
	remote := newRemote(conn, hello, t, process)
	remote.attempts = tried
	return remote, nil
}

// dial makes a connection, which is opened by its first call. pid is the process that must
// be at the other end; zero: any that is trusted. What keeps it from being reached is
// noted in attempts.
func dial(t Target, pid int, attempts *attempts) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if t.Cert != nil {
		config, err := t.TLS()
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(config)
	}
	return connect(creds, func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, t.Network, t.Address)
		attempts.note(err)
		if err != nil || t.Network != "unix" {
			return conn, err
		}
		if err := expected(conn, pid); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	})
}

// attempts remember why a plugin could not be reached: of that grpc makes a text, from which
// the cause cannot be told.
type attempts struct {
	mu   sync.Mutex
	last error // nil: it was reached
}

func (a *attempts) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = err
}

// explain returns err, the failure of a call, with what kept the plugin from being reached.
func (a *attempts) explain(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil || a.last == nil {
		return err
	}
	return &unreached{err, a.last}
}

// An unreached is the error of a call for which there was no connection.
type unreached struct {
	error
	cause error
}

func (u *unreached) Unwrap() []error { return []error{u.error, u.cause} }

// expected reports why the other end is not the process that it must be, if so.
func expected(conn net.Conn, pid int) error {
	if pid == 0 {
		return trusted(conn)
	}
	return isProcess(conn, pid)
}

func connect(creds credentials.TransportCredentials, dialer func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dialer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: helloTimeout,
		}),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(2*window),
		grpc.WithIdleTimeout(0), // a plugin counts a connection as a host
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithNoProxy(),
	)
}

// serverOptions returns the plugin's half of the same.
func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.MaxRecvMsgSize(maxUpdate),
		grpc.NumStreamWorkers(4), // reuse stacks: a host makes the same few calls again and again
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(2 * window),
	}
}

// greet asks what is at the other end, and checks that it is the process that is meant.
func greet(ctx context.Context, conn *grpc.ClientConn, nonce string) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	reply, err := pb.NewHelloClient(conn).Hello(ctx, &pb.HelloRequest{Majors: Majors()}, grpc.MaxCallRecvMsgSize(maxHello))
	if err != nil {
		return Hello{}, fmt.Errorf("ask the plugin what it is: %w", decodeStatus(err))
	}
	hello := decodeHello(reply)
	if nonce != "" && hello.Nonce != nonce {
		return hello, fmt.Errorf("%s answers, which is not the process that was left here", hello)
	}
	return hello, hello.fits()
}
