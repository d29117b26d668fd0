// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A Target is where a plugin listens.
type Target struct {
	Network string // "unix"; on Windows "tcp", or "pipe" for a plugin that listens for itself
	Address string
	TLS     *tls.Config // the host's side of a connection to a plugin that it launched; nil: a plugin that listens for itself
}

// At returns the Target of a plugin that was started with --listen and the same address:
// "unix:///run/pointsman/ipvs.sock"; on Windows `\\.\pipe\pointsman-userspace`.
func At(address string) (Target, error) { return at(address) }

// String returns the address alone.
func (t Target) String() string {
	if t.Network == overPipe {
		return t.Address
	}
	return t.Network + "://" + t.Address
}

// The networks on which the system says which process is at the other end.
const (
	overUnix = "unix"
	overPipe = "pipe"
)

// MaxSocketPath is how many bytes the kernel has room for in a socket's address.
const MaxSocketPath = 107

const (
	// maxUpdate is the most a plugin takes in one message.
	maxUpdate = 4 << 20

	// window is how much of a stream may be on its way unread.
	window = 1 << 20

	// helloTimeout is how long a plugin may take to answer Hello, on a machine that is
	// just starting everything.
	helloTimeout = 5 * time.Second
)

// Dial connects to the plugin behind t. Without TLS the plugin must run as this user or as root. process is what
// runs it; nil: it is not known, and it counts as ended when the connection is lost. A connection that is lost is
// never made again: another process may listen there by then.
func Dial(ctx context.Context, t Target, process Process) (*Remote, error) {
	conn, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	if t.TLS == nil {
		if err := trusted(conn); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return meet(ctx, conn, t, process)
}

// speak begins gRPC on a connection.
func speak(conn net.Conn, config *tls.Config) (*grpc.ClientConn, error) {
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	once := make(chan net.Conn, 1)
	once <- conn
	dialer := func(context.Context, string) (net.Conn, error) {
		select {
		case conn := <-once:
			return conn, nil
		default:
			return nil, errors.New("the connection was lost")
		}
	}
	return grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dialer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithMaxHeaderListSize(maxHeader),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: helloTimeout}),
		grpc.WithInitialWindowSize(window),
		grpc.WithInitialConnWindowSize(2*window),
		grpc.WithIdleTimeout(0),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithNoProxy(),
	)
}

// serverOptions returns the plugin's half of the same. The error of each call leaves as a status. Neither end sends keepalives: on a socket of
// this machine the kernel says when the other process has ended, and one that a debugger has
// stopped would lose its connection.
func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxUpdate),
		grpc.UnaryInterceptor(func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, call grpc.UnaryHandler) (any, error) {
			reply, err := call(ctx, r)
			return reply, encodeStatus(err)
		}),
		grpc.StreamInterceptor(func(server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, call grpc.StreamHandler) error {
			return encodeStatus(call(server, stream))
		}),
		grpc.NumStreamWorkers(4), // reuse stacks: a host makes the same few calls again and again
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(2 * window),
	}
}

// greet asks what is at the other end.
func greet(ctx context.Context, conn *grpc.ClientConn) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	reply, err := pb.NewHelloClient(conn).Hello(ctx, &pb.HelloRequest{Majors: Majors()}, grpc.MaxCallRecvMsgSize(maxHello))
	if err != nil {
		return Hello{}, fmt.Errorf("ask the plugin what it is: %w", decodeStatus(err))
	}
	hello := decodeHello(reply)
	return hello, hello.fits()
}

// Attach connects to a plugin that listens for itself ([At]): it must run as this user or as root. It counts as
// ended when the connection does.
func Attach(ctx context.Context, t Target) (*Remote, error) {
	r, err := Dial(ctx, t, nil)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", t, err)
	}
	return r, nil
}
