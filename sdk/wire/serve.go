// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/test/bufconn"

	"github.com/pointsman/pointsman/sdk"
)

// Serve is the main function of a plugin. If a host launched the process, Serve serves dp until
// the host or SIGTERM ends it, and returns. On a command line it runs the verb in its arguments
// (see --help) and exits.
//
// Calls of dp never overlap, except for Inspect, Trace, ExportAffinity and Report. While a host
// is connected, lines that the plugin prints to os.Stdout and os.Stderr become lines of its
// log.
func Serve(d sdk.Description, dp sdk.Dataplane) {
	if os.Getenv(cookieKey) != cookieValue {
		os.Exit(runCLI(d, dp, os.Args[1:], os.Stdout, os.Stderr))
	}
	if !serveLaunched(newServer(d, dp)) {
		os.Exit(1) // go-plugin has printed the reason to stderr
	}
}

// serveLaunched serves the host that launched this process, and returns false if serving could
// not start.
func serveLaunched(s *server) bool {
	setName()
	defer onSignals(s, syscall.SIGTERM)()
	logs := newLogWriter(os.Stderr)
	defer logs.close(lastLines)
	s.log, s.lost = slog.New(slog.NewJSONHandler(logs, logOptions())), logs.dropped.Load
	go s.endWith(os.Stdin)
	var began bool
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig:  Handshake(),
		VersionedPlugins: map[int]plugin.PluginSet{int(Major): {"dataplane": registration{server: s}}},
		Logger:           hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Error}),
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			began = true
			opts = append(opts, serverOptions()...)
			opts = append(opts, grpc.StatsHandler(&connections{began: sync.OnceFunc(func() { capture(s.log) }), session: &s.session}))
			g := grpc.NewServer(opts...)
			go s.stopWhenEnded(g)
			return g
		},
	})
	return began
}

// lastLines limits the wait for the last log lines at the end of the process.
const lastLines = 200 * time.Millisecond

// endWith ends the server at the end of lifeline, the process's stdin. The host holds the other
// end, so lifeline ends when the host ends for any reason.
func (s *server) endWith(lifeline io.Reader) {
	_, _ = io.Copy(io.Discard, lifeline)
	s.stop()
}

// onSignals ends the server properly on these signals, and catches SIGPIPE: a plugin whose host
// is gone must not end with its next line of output. It catches SIGPIPE instead of ignoring it,
// because child processes would inherit the latter.
func onSignals(s *server, ending ...os.Signal) (stop func()) {
	pipe := make(chan os.Signal, 1) // never read
	signal.Notify(pipe, syscall.SIGPIPE)
	term := make(chan os.Signal, 1)
	signal.Notify(term, ending...)
	go func() { // ends with the server
		select {
		case <-term:
			s.stop()
		case <-s.closing:
		}
	}()
	return func() {
		signal.Stop(term)
		signal.Stop(pipe)
		s.end()
	}
}

// The cookie tells a plugin that a host has launched it, and not a person in a shell.
const (
	cookieKey   = "POINTSMAN_PLUGIN"
	cookieValue = "8d7c4cf0-the-points-are-set"
)

// Handshake returns the settings that go-plugin needs on both sides.
func Handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{MagicCookieKey: cookieKey, MagicCookieValue: cookieValue}
}

// A registration registers the plugin's services with go-plugin. The host creates its client
// without go-plugin.
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

// connections receives gRPC's events about connections. When the first connection arrives,
// go-plugin has finished its changes to os.Stdout and os.Stderr.
type connections struct {
	began   func() // called for each connection
	session *session
}

// A connection identifies a connection from a host, or from something else.
type connection struct{ _ byte } // not empty, so that each has a unique address

type connectionKey struct{}

// connectionOf returns the connection of a call, or nil if it is not known.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

func (c *connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	c.began()
	return context.WithValue(ctx, connectionKey{}, new(connection))
}

func (c *connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); ended {
		c.session.disconnected(connectionOf(ctx))
	}
}

func (c *connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (c *connections) HandleRPC(context.Context, stats.RPCStats)                       {}

// Local connects a Remote to dp in this process: everything is as with a plugin, except for the
// process. It is for tests. Shutdown ends it.
func Local(ctx context.Context, d sdk.Description, dp sdk.Dataplane) (*Remote, error) {
	s := newServer(d, dp)
	listener := bufconn.Listen(window)
	g := grpc.NewServer(serverOptions()...)
	s.register(g)
	go s.stopWhenEnded(g)
	go func() { _ = g.Serve(listener) }() // ends with Shutdown
	conn, err := listener.DialContext(ctx)
	if err != nil {
		s.end()
		return nil, err
	}
	remote, err := newRemote(ctx, conn, Target{Network: "local"}, nil)
	if err != nil {
		s.end()
	}
	return remote, err
}
