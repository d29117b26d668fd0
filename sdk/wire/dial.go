// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// A Target is where a plugin listens, and by what it and its host know each other. It
// holds the host's key: keep it where only the host can read (0600).
type Target struct {
	Network string `json:"network"` // "unix"; on Windows "tcp", or "pipe" for a plugin that listens for itself
	Address string `json:"address"`
	Nonce   string `json:"nonce,omitempty"` // Hello.Nonce of the process that is meant; empty: not known yet
	Cert    []byte `json:"cert,omitempty"`  // the host's certificate, PEM; none for a plugin that listens for itself
	Key     []byte `json:"key,omitempty"`   // its key, PEM
	Peer    []byte `json:"peer,omitempty"`  // the plugin's certificate, DER
}

// At returns the Target of a plugin that was started with --listen and the same address:
// "unix:///run/pointsman/ipvs.sock"; on Windows `\\.\pipe\pointsman-userspace`.
func At(address string) (Target, error) { return at(address) }

// String returns the address alone, without the key.
func (t Target) String() string {
	if t.Network == overPipe {
		return t.Address
	}
	return t.Network + "://" + t.Address
}

// The networks: the first two are those on which the system says which process is at the other
// end.
const (
	overUnix = "unix"
	overPipe = "pipe"
	overTCP  = "tcp"
)

// PID returns the process behind a unix socket, which must be this user's or root's, or behind a
// pipe of Windows, which must be this user's or administrators'. Zero: the
// kernel has no name for it here, as for a process of another PID namespace.
func (t Target) PID(ctx context.Context) (int, error) {
	conn, err := t.open(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if t.Network == overTCP {
		return 0, nil
	}
	if err := trusted(conn); err != nil {
		return 0, err
	}
	p, err := peerOf(conn)
	return p.pid, err
}

// serverName is what both certificates are for; go-plugin's is.
const serverName = "localhost"

// TLS returns the host's side of a connection. Peer is the only certificate that it accepts;
// without one, as before the plugin has told its own, any is.
func (t Target) TLS() (*tls.Config, error) {
	pair, err := tls.X509KeyPair(t.Cert, t.Key)
	if err != nil {
		return nil, fmt.Errorf("the host's key pair: %w", err)
	}
	config := &tls.Config{
		Certificates: []tls.Certificate{pair},
		ServerName:   serverName,
		MinVersion:   tls.VersionTLS12,
	}
	if t.Peer == nil {
		return config, nil
	}
	parsed, err := x509.ParseCertificate(t.Peer)
	if err != nil {
		return nil, fmt.Errorf("the plugin's certificate: %w", err)
	}
	config.RootCAs = x509.NewCertPool()
	config.RootCAs.AddCert(parsed)
	config.Time = func() time.Time { return parsed.NotBefore } // it is this one whatever the clock says
	return config, nil
}

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

// Dial connects to the plugin behind t, which must be that process; where its PID is zero,
// any that runs as this user or as root. Close closes the connection to it.
func Dial(ctx context.Context, t Target, process Process) (*Remote, error) {
	tried := &attempts{}
	conn, err := dial(t, process.PID(), tried)
	if err != nil {
		return nil, err
	}
	return meet(ctx, conn, t, process, tried)
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
		conn, err := t.open(ctx)
		attempts.note(err)
		if err != nil || t.Network == overTCP {
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

func connect(creds credentials.TransportCredentials, dialer func(context.Context, string) (net.Conn, error)) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///plugin",
		grpc.WithTransportCredentials(creds),
		grpc.WithContextDialer(dialer),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive)),
		grpc.WithMaxHeaderListSize(maxHeader),
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

// serverOptions returns the plugin's half of the same. Neither end sends keepalives: on a socket of
// this machine the kernel says when the other process has ended, and one that a debugger has
// stopped would lose its connection.
func serverOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
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

// Attach connects to a plugin that listens for itself ([At]), whichever process that is:
// it must run as this user or as root. It counts as ended when the connection does.
func Attach(ctx context.Context, t Target) (*Remote, error) {
	process := newUnseen()
	r, err := Dial(ctx, t, process)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w", t, err)
	}
	process.follow(r.conn)
	r.release = process.cancel
	return r, nil
}
