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

// A Target is the address at which a plugin listens.
type Target struct {
	Network string // "unix"; on Windows "tcp", or "pipe" for a plugin started with --listen
	Address string
	TLS     *tls.Config // the host's side of mutual TLS with a plugin that it launched; nil for a plugin started with --listen
}

// At returns the Target of a plugin that was started with --listen and the same address:
// "unix:///run/pointsman/ipvs.sock"; on Windows `\\.\pipe\pointsman-userspace`.
func At(address string) (Target, error) { return at(address) }

// String returns the address without the network.
func (t Target) String() string {
	if t.Network == overPipe {
		return t.Address
	}
	return t.Network + "://" + t.Address
}

// Networks on which the operating system identifies the process at the other end.
const (
	overUnix = "unix"
	overPipe = "pipe"
)

// MaxSocketPath is the maximum length of a unix socket's path in bytes.
const MaxSocketPath = 107

const (
	// maxUpdate is the largest message that a plugin accepts.
	maxUpdate = 4 << 20

	// window is the flow-control window of a stream.
	window = 1 << 20

	// helloTimeout limits the answer to Hello, on a machine that is booting.
	helloTimeout = 5 * time.Second
)

// Dial connects to the plugin at t. Without TLS the plugin must run as this user or as root.
// process is the plugin's process; if nil, the process counts as ended when the connection is
// lost. Dial never reconnects, because another process may listen at the address by then.
func Dial(ctx context.Context, t Target, process Process) (*Remote, error) {
	conn, err := t.open(ctx)
	if err != nil {
		return nil, err
	}
	if t.TLS == nil {
		if err := checkTrusted(conn); err != nil {
			conn.Close()
			return nil, err
		}
	}
	return newRemote(ctx, conn, t, process)
}

// newClientConn returns a gRPC connection that uses conn.
func newClientConn(conn net.Conn, config *tls.Config) (*grpc.ClientConn, error) {
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

// serverOptions returns the same settings for the plugin's side. It converts the error of each
// call to a status. Neither side sends keepalives: on a local socket the kernel reports when
// the other process has ended, and a process that a debugger has stopped would lose its
// connection.
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
		grpc.NumStreamWorkers(4), // reuse goroutine stacks: a host repeats the same few calls
		grpc.InitialWindowSize(window),
		grpc.InitialConnWindowSize(2 * window),
	}
}

// callHello calls Hello, and checks that both sides have a common major.
func callHello(ctx context.Context, conn *grpc.ClientConn) (Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	reply, err := pb.NewHelloClient(conn).Hello(ctx, &pb.HelloRequest{Majors: Majors()}, grpc.MaxCallRecvMsgSize(maxHello))
	if err != nil {
		return Hello{}, fmt.Errorf("ask the plugin what it is: %w", decodeStatus(err))
	}
	hello := decodeHello(reply)
	return hello, hello.checkMajors()
}

// Attach connects to a plugin that was started with --listen ([At]). The plugin must run as
// this user or as root. Its process counts as ended when the connection is lost.
func Attach(ctx context.Context, t Target) (*Remote, error) {
	r, err := Dial(ctx, t, nil)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", t, err)
	}
	return r, nil
}
