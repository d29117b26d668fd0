// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

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
// Calls of dp never overlap, but for Inspect, ExportAffinity and Report. From the first
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
			opts = append(opts, grpc.StatsHandler(&connections{first: out.capture, presence: hosts}))
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
	for _, v := range strings.Split(versions, ",") {
		if n, err := strconv.ParseUint(v, 10, 32); err == nil && uint32(n) == Major {
			return
		}
	}
	fmt.Fprintf(os.Stderr, "this plugin does not fit a host that speaks major %s: %s\n", versions, needs(Major))
}
