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

// Serve is a plugin's main. Launched by a host, it serves dp until the host or a SIGTERM
// ends it, and returns. Run from a command line, it does what its arguments say (see
// --help), and exits.
//
// Calls of dp never overlap, but for Inspect, Trace, ExportAffinity and Report. Once a host is
// connected, lines that the plugin prints to os.Stdout and os.Stderr become lines of its log.
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
	takeName()
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
			opts = append(opts, grpc.StatsHandler(&connections{first: func() { capture(s.log) }, session: &s.session}))
			g := grpc.NewServer(opts...)
			go s.stopWhenEnded(g)
			return g
		},
	})
	return began
}

// lastLines is how long the end of the process waits for the last lines of its log to be written.
const lastLines = 200 * time.Millisecond

// endWith ends the server when the lifeline reaches its end: the host holds the other end of a launched plugin's
// stdin, so that end comes when the host ends, however that happens.
func (s *server) endWith(lifeline io.Reader) {
	_, _ = io.Copy(io.Discard, lifeline)
	s.stop()
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

// connections is how gRPC tells of connections. When the first one comes, go-plugin has done all it does with
// os.Stdout and os.Stderr.
type connections struct {
	first   func() // nil: nothing is to be done
	once    sync.Once
	session *session
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
	if c.first != nil {
		c.once.Do(c.first)
	}
	return context.WithValue(ctx, connectionKey{}, new(connection))
}

func (c *connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ended := s.(*stats.ConnEnd); ended {
		c.session.disconnected(connectionOf(ctx))
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
	go s.stopWhenEnded(g)
	go func() { _ = g.Serve(listener) }() // ends with Shutdown
	conn, err := listener.DialContext(ctx)
	if err != nil {
		s.end()
		return nil, err
	}
	remote, err := meet(ctx, conn, Target{Network: "local"}, nil)
	if err != nil {
		s.end()
	}
	return remote, err
}
