// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"errors"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/internal/descriptors"
	"github.com/pointsman/pointsman/sdk"
)

// The reasons of this package's notices, which are kube-proxy's.
const (
	ProbesNotServed  = "FailedToStartProxierHealthcheck" // `healthzBindAddress` cannot be bound (W012)
	MetricsNotServed = "FailedToStartMetricServer"       // `metricsBindAddress` cannot be bound (W012)
	CheckNotServed   = "FailedToStartServiceHealthcheck" // the `healthCheckNodePort` of a Service cannot be bound (W012)
	WebNotServed     = "WebNotServed"                    // `webBindAddress` cannot be bound (W012)
	SampleRefused    = "SampleRefused"                   // a metric of a plugin is not published, because of its name or labels: report it to the plugin's authors
)

const (
	bindAgain  = 5 * time.Second // after an address could not be bound
	lookPeriod = time.Second     // how often is looked whether something waits
	stuckAfter = time.Minute     // a loop that has not run for so long is stuck
	shownAfter = 3 * time.Second // what has waited for so long is worth a look
)

// Settings are what the servers must know. All are given, but where a zero is said to mean
// something.
type Settings struct {
	Healthz, Metrics string // host:port; empty: not served
	Web              string // likewise: where Pages are shown
	Pages            http.Handler
	HardFail         bool // an address that cannot be bound ends Run; else it is tried again
	Profiling        bool

	Mode    func() string // the dataplane that serves
	Version string
	Period  time.Duration // a change that waits for two of them is late
	MinGap  time.Duration // between two updates: a change may wait for that

	Tracker    *track.Tracker
	Dataplanes func() []Dataplane       // as they are now, the one that is meant to serve first
	Config     func() ([]byte, error)   // the settings in force, as JSON
	KubeProxy  func() []byte            // kube-proxy's file that says so, as JSON; nil: it is none
	Events     func() map[string]int    // how often each kind of event happened
	Warnings   func() map[string]int    // what status warns of, by code; nil: what the assessment finds alone
	Fault      func() string            // why no changes come now; empty: they do
	Level      func(level string) error // changes the log's level
	Report     func(track.Notice)

	Log *log.Logger // what net/http has to say

	Now   func() time.Time // nil: time.Now
	Addrs func() []Addr    // this machine's; nil: as they are
}

// A Dataplane is one dataplane as the host runs it.
type Dataplane struct {
	Name       string
	State      string    // of its process, as package supervise names it
	Why        string    // it is in that state
	Up         bool      // in a session
	Filled     bool      // it has confirmed everything, in this session
	Active     bool      // in this session it was made the one that serves
	Mortal     bool      // what it does ends with its process
	NoWriter   string    // why it may not write; empty: it may
	Failure    string    // of the last update, where that failed
	Since      time.Time // since when the oldest of what it is owed is; zero: nothing is
	Looked     time.Time // when the loop that keeps its process last looked; zero: not known
	Restarts   int
	LogDropped uint64 // lines of its log that are not in the host's
	Memory     uint64 // bytes
	Report     sdk.Report
	Repairs    int // of other programs' changes, in the last minutes

	Writer      bool              // it is the writer, or needs no lock
	Sent, Acked uint64            // revisions
	Pending     int               // ports of Services that are owed or in flight
	Unserved    map[string]int    // ports of Services that it does not serve as they ask, by why
	Dropped     map[string]uint64 // packets, of all dataplanes that there were, by those reasons that it counts
}

// A Server answers probes, scrapes and health checks. Its methods are safe for concurrent use.
type Server struct {
	settings Settings
	metrics  *metrics
	checks   *checks
	started  time.Time

	looks sync.Mutex // held while looking

	mu       sync.Mutex // guards what follows; nothing else is waited for while it is held
	progress progress
	known    Facts             // as they were when it was last looked, but for Now, Waiting and Stuck
	looked   time.Time         // when that was
	open     time.Time         // when the tracker last took changes in
	changes  track.Changes     // that are applied
	unbound  map[string]string // by setting, why its address cannot be bound
}

// New makes the servers; nothing listens before Run.
func New(s Settings) *Server {
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.Addrs == nil {
		s.Addrs = machineAddrs
	}
	server := &Server{settings: s, started: s.Now(), unbound: make(map[string]string)}
	server.looked, server.open = server.started, server.started
	server.SetPeriods(s.MinGap, s.Period)
	server.metrics = newMetrics(server)
	server.checks = newChecks(s, func() bool { return server.assessed().Healthy })
	return server
}

// SetPeriods changes Settings.MinGap and Settings.Period.
func (s *Server) SetPeriods(minGap, period time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Allowed, s.known.Shown = 2*period, shownAfter+max(0, minGap-time.Second)
}

// SetNode says whether the Node is about to be removed, or does not exist. In both cases load balancers
// must not choose this node.
func (s *Server) SetNode(leaving, nameless bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Leaving, s.known.Nameless = leaving, nameless
}

// Assess returns how the node is now.
func (s *Server) Assess() Assessment {
	s.look()
	return s.assessed()
}

// assessed returns how the node was when it was last looked.
func (s *Server) assessed() Assessment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Assess(s.facts(s.settings.Now()))
}

// Live reports whether no loop of the host is stuck.
func (s *Server) Live() bool { return s.assessed().Live }

// facts returns what is known at now. The caller has mu.
func (s *Server) facts(now time.Time) Facts {
	f := s.known
	f.Now, f.Waiting, f.Stuck = now, s.progress.waiting, s.stuck(now)
	return f
}

// stuck says which loop of the host is stuck. The caller has mu.
func (s *Server) stuck(now time.Time) string {
	for _, l := range []struct {
		what   string
		turned time.Time
	}{
		{"the host has not looked at its dataplane", s.looked},
		{"the host has not taken in a change", s.open},
		{"the host has not looked at its plugin's process", s.known.Dataplane.Looked},
	} {
		if d := now.Sub(l.turned); !l.turned.IsZero() && d > stuckAfter {
			return fmt.Sprintf("%s for %s", l.what, phrase.Round(d))
		}
	}
	return ""
}

// An Applied is one update that the dataplane that serves has confirmed.
type Applied struct {
	Families []sdk.Family // that it was about
	Full     bool
	Took     time.Duration
	Triggers []time.Time // when the changes in it were made
}

// Applied counts an update that was confirmed.
func (s *Server) Applied(a Applied) {
	now := s.settings.Now()
	changes := s.settings.Tracker.Changes()
	s.mu.Lock()
	s.progress.confirm(a.Families, now)
	s.changes = changes
	s.mu.Unlock()
	s.metrics.applied(a, now)
	s.look()
}

// Failed counts an update that failed altogether.
func (s *Server) Failed() { s.metrics.failures.Inc() }

// look looks how the dataplane that is meant to serve is, and whether something waits.
func (s *Server) look() {
	s.looks.Lock() // an older look must not come after a newer one
	defer s.looks.Unlock()
	var dataplane Dataplane
	changes := s.settings.Tracker.Changes() // before what is owed: a change in between is in neither, or in what is owed
	synced, open := s.settings.Tracker.HasSynced(), s.settings.Tracker.Open()
	if dataplanes := s.settings.Dataplanes(); len(dataplanes) > 0 {
		dataplane = dataplanes[0]
	}
	now := s.settings.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Dataplane, s.known.Synced, s.looked = dataplane, synced, now
	if open {
		s.open = now
	}
	s.progress.look(dataplane, synced, changes, now)
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
	listen(s.settings.Metrics, MetricsNotServed, "metricsBindAddress", s.Endpoints())
	listen(s.settings.Web, WebNotServed, "webBindAddress", s.settings.Pages)
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
	l, err := listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	s.bound(what, nil)
	server := newHTTPServer(h, s.settings.Log)
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

// mostConns is how many connections each listener of this package accepts at a time. Others wait in the kernel.
const mostConns = 64

// listen listens at an address. Each server has a listener of its own, so that callers of one do not keep a probe of
// another waiting.
func listen(ctx context.Context, network, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return netutil.LimitListener(l, descriptors.Connections(mostConns)), nil
}

// newHTTPServer returns a server that no client can hold up.
func newHTTPServer(h http.Handler, to *log.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      30 * time.Second,
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          to,
	}
}
