// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

// The reasons of this package's notices, which are kube-proxy's.
const (
	ProbesNotServed  = "FailedToStartProxierHealthcheck"
	MetricsNotServed = "FailedToStartMetricServer"
	CheckNotServed   = "FailedToStartServiceHealthcheck"
	SampleRefused    = "SampleRefused" // a dataplane's metric that is not published
)

const (
	bindAgain  = 5 * time.Second // after an address could not be bound
	lookPeriod = time.Second     // how often is looked whether something waits
)

// Settings are what the servers must know.
type Settings struct {
	Healthz, Metrics string // host:port; empty: not served
	HardFail         bool   // an address that cannot be bound ends Run; else it is tried again
	Profiling        bool

	Mode    func() string // the dataplane that serves; nil: not said
	Version string
	Period  time.Duration // a change that waits for two of them is late

	Tracker *track.Tracker
	Planes  func() []Plane           // as they are now, the one that serves among them; nil: none
	Config  func() ([]byte, error)   // the settings in force, as JSON; nil: not shown
	Events  func() map[string]int    // how often each kind of event happened; nil: not counted
	Fault   func() string            // why no changes are heard of now; empty: they are; nil: they are
	Level   func(level string) error // changes the log's level; nil: it cannot be changed
	Report  func(track.Notice)       // nil: nobody is told

	Now   func() time.Time // nil: time.Now
	Addrs func() []Addr    // this machine's; nil: as they are
}

// A Plane is one dataplane as the host runs it.
type Plane struct {
	Name     string
	Up       bool // in a session
	Active   bool // it is the one that serves
	Mortal   bool // what it does ends with its process
	Restarts int
	Memory   uint64 // bytes
	Report   sdk.Report

	Sent, Acked            uint64 // revisions
	Pending                int    // ports of Services that are owed or in flight
	Failed, Withheld, Kept int    // ports of Services that are not served as asked
}

// A Server is all that answers. Its methods are safe for concurrent use.
type Server struct {
	settings Settings
	metrics  *metrics
	checks   *checks
	started  time.Time

	mu       sync.Mutex // guards what follows
	progress progress
	eligible bool
	changes  track.Changes     // that are applied
	unbound  map[string]string // by setting, why its address cannot be bound
}

// New makes the servers; nothing listens before Run.
func New(s Settings) *Server {
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Report == nil {
		s.Report = func(track.Notice) {}
	}
	if s.Planes == nil {
		s.Planes = func() []Plane { return nil }
	}
	if s.Fault == nil {
		s.Fault = func() string { return "" }
	}
	if s.Mode == nil {
		s.Mode = func() string { return "" }
	}
	if s.Events == nil {
		s.Events = func() map[string]int { return nil }
	}
	if s.Addrs == nil {
		s.Addrs = machineAddrs
	}
	server := &Server{settings: s, started: s.Now(), eligible: true, unbound: make(map[string]string)}
	server.progress.allowed = 2 * s.Period
	server.metrics = newMetrics(server)
	server.checks = newChecks(s, server.healthy)
	return server
}

// SetPeriod changes Settings.Period.
func (s *Server) SetPeriod(period time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.allowed = 2 * period
}

// SetEligible says whether load balancers may choose this node. They may until
// told otherwise.
func (s *Server) SetEligible(eligible bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eligible = eligible
}

// healthy reports whether what changes is applied in time.
func (s *Server) healthy() bool {
	_, good := s.probe(livez)
	return good
}

// An Applied is one update that the dataplane that serves has confirmed.
type Applied struct {
	Families []sdk.Family // that it was about
	Full     bool
	Took     time.Duration
	Triggers []time.Time // when the changes in it were made
}

// Applied takes in an update that was confirmed.
func (s *Server) Applied(a Applied) {
	now := s.settings.Now()
	changes := s.settings.Tracker.Changes()
	s.mu.Lock()
	s.progress.confirm(a.Families, a.Full, now)
	s.changes = changes
	s.mu.Unlock()
	s.metrics.applied(a, now)
}

// Failed takes in an update that failed altogether.
func (s *Server) Failed() { s.metrics.failures.Inc() }

// look looks whether something waits to be applied.
func (s *Server) look() {
	pending := s.pending()
	now := s.settings.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress.look(pending, now)
}

// pending reports whether something waits to be applied. While no dataplane is
// there, that is what changed since; all that was before is served still, save by
// one that ended with its process.
func (s *Server) pending() bool {
	for _, p := range s.settings.Planes() {
		switch {
		case !p.Active:
		case p.Up:
			return p.Pending > 0
		case p.Mortal:
			return true
		}
	}
	changes := s.settings.Tracker.Changes()
	s.mu.Lock()
	defer s.mu.Unlock()
	return changes != s.changes
}

// Run serves until ctx ends, or an address cannot be bound and must be.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	listen := func(addr, reason, what string, h http.Handler) {
		if addr == "" {
			return
		}
		running.Go(func() { // until ctx ends
			if err := s.serve(ctx, addr, reason, what, h); err != nil {
				cancel(err)
			}
		})
	}
	listen(s.settings.Healthz, ProbesNotServed, "healthzBindAddress", s.probes())
	listen(s.settings.Metrics, MetricsNotServed, "metricsBindAddress", s.pages())
	running.Go(func() { s.checks.run(ctx) })
	tick := time.NewTicker(lookPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look()
		case <-ctx.Done():
			running.Wait()
			return context.Cause(ctx)
		}
	}
}

// serve answers at addr until ctx ends. An address that cannot be bound is tried
// again, unless it must be bound.
func (s *Server) serve(ctx context.Context, addr, reason, what string, h http.Handler) error {
	for {
		err := s.serveAt(ctx, addr, what, h)
		if ctx.Err() != nil {
			return nil
		}
		err = fmt.Errorf("%s: %w", what, err)
		s.bound(what, err)
		s.settings.Report(track.Notice{Warning: true, Reason: reason, Message: err.Error()})
		if s.settings.HardFail {
			return err
		}
		select {
		case <-time.After(bindAgain):
		case <-ctx.Done():
		}
	}
}

// serveAt answers at addr until ctx ends.
func (s *Server) serveAt(ctx context.Context, addr, what string, h http.Handler) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s.bound(what, nil)
	server := newHTTPServer(h)
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// bound takes in whether the address of a setting is answered at.
func (s *Server) bound(what string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unbound, what)
	if err != nil {
		s.unbound[what] = err.Error()
	}
}

// Unbound says which addresses should be answered at and cannot be bound now, and
// why: those of the settings, and the Services' healthCheckNodePorts.
func (s *Server) Unbound() []string {
	s.mu.Lock()
	list := slices.Sorted(maps.Values(s.unbound))
	s.mu.Unlock()
	return append(list, s.checks.unbound()...)
}

// newHTTPServer is one that nobody can hold up.
func newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
}
