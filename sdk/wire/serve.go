// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pointsman/pointsman/sdk"
)

// hostTimeout is how long a plugin runs while no host is connected. What it keeps in the
// kernel stays. One whose serving ends with its process has no limit.
const hostTimeout = 10 * time.Minute

// unusedTimeout is the limit for a plugin that was never given a role. Its host ended before
// it could write down the process's handle, so that no later host can find it.
const unusedTimeout = time.Minute

// Serve is a plugin's main. Launched by a host, it serves dp until the host or a SIGTERM
// ends it, and returns. Run from a command line, it does what its arguments say (see
// --help), and exits.
//
// Calls of dp never overlap, but for Inspect, Trace, Count, ExportAffinity and Report. From the first
// connection on, stdout and stderr lead to the log that the host reads.
func Serve(d sdk.Description, dp sdk.Dataplane) {
	if os.Getenv(cookieKey) != cookieValue {
		os.Exit(runCLI(d, dp, os.Args[1:], os.Stdout, os.Stderr))
	}
	if !serveLaunched(newServer(d, dp)) {
		os.Exit(1) // go-plugin has said why, on stderr
	}
}

// serveLaunched serves the host that launched this process, and reports whether
// it came so far.
func serveLaunched(s *server) bool {
	warnOfSkew()
	takeName()
	defer onSignals(s, syscall.SIGTERM)()
	out := newOutput(s.ring)
	hosts := newPresence(s.withoutHost, s.end)
	var began bool
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{int(Major): {"dataplane": registration{server: s}}},
		Logger:           hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Error}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			began = true
			opts = append(opts, serverOptions()...)
			opts = append(opts, grpc.StatsHandler(&connections{first: out.capture, presence: hosts, session: &s.session}))
			g := grpc.NewServer(opts...)
			go s.stopWhenEnded(g)
			return g
		},
	})
	return began
}

// onSignals makes these signals an orderly end, and SIGPIPE nothing: a plugin whose host is
// gone must not end with its next line of output. They are caught rather than ignored,
// because children would inherit that.
func onSignals(s *server, ending ...os.Signal) (stop func()) {
	pipe := make(chan os.Signal, 1) // never read
	signal.Notify(pipe, syscall.SIGPIPE)
	term := make(chan os.Signal, 1)
	signal.Notify(term, ending...)
	go func() { // ends with the server
		select {
		case <-term:
			s.settle(settleTime)
			s.end()
		case <-s.closing:
		}
	}()
	return func() {
		signal.Stop(term)
		signal.Stop(pipe)
		s.end()
	}
}

// hostTimeoutOf returns how long this dataplane's process runs without a host; zero: no limit.
func hostTimeoutOf(d sdk.Description) time.Duration {
	if slices.Contains(d.Limits, sdk.LimitDiesWithProcess) {
		return 0
	}
	return hostTimeout
}

// withoutHost returns how long this process may run without a host, as things are now; zero: no
// limit.
func (s *server) withoutHost() time.Duration {
	if _, role := s.session.now(); role == 0 && (s.hostTimeout == 0 || s.hostTimeout > unusedTimeout) {
		return unusedTimeout
	}
	return s.hostTimeout
}

// warnOfSkew tells a host that does not speak our major what would fit. It goes
// to stderr, before the handshake that the host will refuse.
func warnOfSkew() {
	versions := os.Getenv("PLUGIN_PROTOCOL_VERSIONS")
	if slices.Contains(strings.Split(versions, ","), fmt.Sprint(Major)) {
		return
	}
	fmt.Fprintf(os.Stderr, "this plugin does not fit a host that speaks major %s: %s\n", versions, needs(Major))
}

// The cookie tells a plugin that a host has launched it, and not a person.
const (
	cookieKey   = "POINTSMAN_PLUGIN"
	cookieValue = "8d7c4cf0-the-points-are-set"
)

// Handshake returns what go-plugin has to know at both ends.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}
}

// A registration gives go-plugin the services of a plugin. The host's side makes its own
// client, without go-plugin.
type registration struct {
	plugin.NetRPCUnsupportedPlugin
	server *server
}

func (r registration) GRPCServer(_ *plugin.GRPCBroker, g *grpc.Server) error {
	r.server.register(g)
	return nil
}

func (registration) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, fmt.Errorf("the host dials by itself")
}

// A presence knows whether a host is connected, and calls gone when none has
// been for too long.
type presence struct {
	timeout func() time.Duration // as things are now; zero: none
	gone    func()

	mu    sync.Mutex // guards what is below
	hosts int
	timer *time.Timer // runs while there is no host
}

// newPresence begins without a host: one that ends between the launch and its
// first call never connects.
func newPresence(timeout func() time.Duration, gone func()) *presence {
	p := &presence{timeout: timeout, gone: gone}
	p.wait()
	return p
}

func (p *presence) connected() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hosts++
	if p.timer != nil {
		p.timer.Stop()
	}
}

func (p *presence) disconnected() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hosts--; p.hosts == 0 {
		p.wait()
	}
}

// wait begins to wait for a host. The lock is held.
func (p *presence) wait() {
	if timeout := p.timeout(); timeout > 0 {
		p.timer = time.AfterFunc(timeout, func() { p.expire(timeout) })
	}
}

// expire ends the waiting, unless the timeout is another one by now: a call that gave the
// process its role may have ended after its host did.
func (p *presence) expire(waited time.Duration) {
	p.mu.Lock()
	alone := p.hosts == 0
	changed := p.timeout() != waited
	if alone && changed {
		p.wait()
	}
	p.mu.Unlock()
	if alone && !changed {
		p.gone()
	}
}

// connections is how gRPC tells of connections. The first one also means that
// go-plugin has done all it does with stdout and stderr.
type connections struct {
	first    func()
	once     sync.Once
	presence *presence // nil: the process does not end without a host
	session  *session
}

// A connection is one that a host, or something else, has made.
type connection struct{ _ byte } // so that each has an address of its own

type connectionKey struct{}

// connectionOf returns the connection that a call came by; nil: it is not known.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	c.once.Do(c.first)
	return context.WithValue(ctx, connectionKey{}, new(connection))
}

func (c *connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	switch s.(type) {
	case *stats.ConnBegin:
		c.presence.connected()
	case *stats.ConnEnd:
		c.session.disconnected(connectionOf(ctx))
		c.presence.disconnected()
	}
}

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                       {}

// Local joins both ends of the wire in this process: everything is as with a
// plugin of its own, but for the process. It is for tests, and it ends with Shutdown.
func Local(ctx context.Context, d sdk.Description, dp sdk.Dataplane) (*Remote, error) {
	s := newServer(d, dp)
	listener := bufconn.Listen(window)
	g := grpc.NewServer(serverOptions()...)
	s.register(g)
	p := newUnseen()
	go s.stopWhenEnded(g)
	go func() { // ends with Shutdown
		_ = g.Serve(listener)
		p.end("was stopped")
	}()
	conn, err := connect(insecure.NewCredentials(), func(ctx context.Context, _ string) (net.Conn, error) {
		return listener.DialContext(ctx)
	})
	if err != nil {
		s.end()
		return nil, err
	}
	remote, err := meet(ctx, conn, Target{Network: "local", Nonce: s.hello.Nonce}, p, &attempts{})
	if err != nil {
		s.end()
	}
	return remote, err
}
