// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/internal/descriptors"
	"github.com/pointsman/pointsman/sdk"
)

// Reasons of this package's notices. They are the same as kube-proxy's.
const (
	ProbesNotServed  = "FailedToStartProxierHealthcheck" // `healthzBindAddress` cannot be bound (W012)
	MetricsNotServed = "FailedToStartMetricServer"       // `metricsBindAddress` cannot be bound (W012)
	CheckNotServed   = "FailedToStartServiceHealthcheck" // the `healthCheckNodePort` of a Service cannot be bound (W012)
	WebNotServed     = "WebNotServed"                    // `webBindAddress` cannot be bound (W012)
	SampleRefused    = "SampleRefused"                   // a metric of a plugin is not published, because of its name or labels: report it to the plugin's authors
)

const (
	interval   = time.Second     // how often to check whether a change waits, and to bind addresses that are not bound
	stuckAfter = time.Minute     // a loop that has not run for this long is stuck
	shownAfter = 3 * time.Second // a change that has waited for this long is shown in status
)

// Settings are the dependencies of a Server. All fields are required, unless their comment
// defines the zero value.
type Settings struct {
	Healthz, Metrics string // host:port; empty means not served
	Web              string // host:port for Pages; empty means not served
	Pages            http.Handler
	HardFail         bool // Run returns if an address cannot be bound, instead of retrying
	Profiling        bool

	Mode    func() string // the serving dataplane
	Version string
	Period  time.Duration // a change that waits for two periods is late
	MinGap  time.Duration // between two updates; a change may have to wait that long

	Tracker    *track.Tracker
	Dataplanes func() []Dataplane       // current state; the one that should serve is first
	Config     func() ([]byte, error)   // the current settings, as JSON
	KubeProxy  func() []byte            // the config file as JSON if it is a kube-proxy file, else nil
	Events     func() map[string]int    // number of events by reason
	Warnings   func() map[string]int    // number of status warnings by code
	Fault      func() string            // why the source delivers no changes; empty if it does
	Level      func(level string) error // changes the log's level
	Report     func(track.Notice)

	Log *log.Logger // for errors of net/http

	Now func() time.Time // nil means time.Now
}

// A Dataplane is the state of one dataplane.
type Dataplane struct {
	Name       string
	State      string    // of its process: dataplanes.State
	Why        string    // the reason of the state
	Up         bool      // in a session
	Filled     bool      // it has confirmed the whole state in this session
	Active     bool      // its role in this session is Active
	Mortal     bool      // it stops serving when its process ends
	NoWriter   string    // why it may not write; empty if it may
	Failure    string    // error of the last update; empty if it succeeded
	Since      time.Time // since when the oldest change is owed; zero if none is
	Looked     time.Time // when the loop that runs its process last checked it; zero if not known
	Restarts   int
	LogDropped uint64 // lines of its log that were not passed to the host's log
	Memory     uint64 // bytes
	Report     sdk.Report
	Repairs    int // how often it reverted other programs' changes in the last minutes

	Writer      bool              // it holds the writer's lock, or needs none
	Sent, Acked uint64            // revisions
	Pending     int               // ports of Services that are owed or in flight
	Unserved    map[string]int    // ports of Services that are not served as specified, by reason
	Dropped     map[string]uint64 // packets dropped by its rules, by reason
}

// A Server answers probes, scrapes and health checks. Its methods are safe for concurrent use.
type Server struct {
	settings Settings
	metrics  *metrics
	servers  map[string]*http.Server // by address; used by bind only
	machine  func() ([]netip.Addr, error)
	addrs    []netip.Addr // that accept node ports; used by checkBindings only
	started  time.Time

	observing sync.Mutex // serializes observe

	mu            sync.Mutex // guards the fields below; never block while holding it
	progress      progress
	known         Facts                        // from the last observation, without Now, Waiting and Stuck
	observed      time.Time                    // time of the last observation
	open          time.Time                    // when the tracker last accepted changes
	changes       track.Changes                // the changes that are applied
	checks        map[uint16]track.HealthCheck // by port
	unbound       []string                     // addresses that cannot be bound, and why
	unboundChecks int                          // how many of them are healthCheckNodePorts
}

// New returns a Server. It does not listen before Run.
func New(s Settings) *Server {
	if s.Now == nil {
		s.Now = time.Now
	}
	server := &Server{settings: s, started: s.Now(), servers: make(map[string]*http.Server), machine: machineAddrs}
	server.observed, server.open = server.started, server.started
	server.SetPeriods(s.MinGap, s.Period)
	server.metrics = newMetrics(server)
	return server
}

// SetPeriods changes Settings.MinGap and Settings.Period.
func (s *Server) SetPeriods(minGap, period time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Allowed, s.known.Shown = 2*period, shownAfter+max(0, minGap-time.Second)
}

// SetNode sets whether the Node is about to be removed, or does not exist. In both cases load
// balancers must not choose this node.
func (s *Server) SetNode(leaving, nameless bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Leaving, s.known.Nameless = leaving, nameless
}

// Assess returns the current health of the node.
func (s *Server) Assess() Assessment {
	s.observe()
	return s.assessed()
}

// assessed returns the health of the node from the last observation.
func (s *Server) assessed() Assessment {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Assess(s.facts(s.settings.Now()))
}

// Live reports whether no loop of the host is stuck.
func (s *Server) Live() bool { return s.assessed().Live }

// facts returns the facts at now. The caller holds mu.
func (s *Server) facts(now time.Time) Facts {
	f := s.known
	f.Now, f.Waiting, f.Stuck = now, s.progress.waiting, s.stuck(now)
	return f
}

// stuck returns which loop of the host is stuck, or "". The caller holds mu.
func (s *Server) stuck(now time.Time) string {
	for _, l := range []struct {
		what   string
		turned time.Time
	}{
		{"the host has not checked its dataplane", s.observed},
		{"the host has not accepted a change", s.open},
		{"the host has not checked its plugin's process", s.known.Dataplane.Looked},
	} {
		if d := now.Sub(l.turned); !l.turned.IsZero() && d > stuckAfter {
			return fmt.Sprintf("%s for %s", l.what, phrase.Round(d))
		}
	}
	return ""
}

// An Applied is an update that the serving dataplane confirmed.
type Applied struct {
	Families []sdk.Family // that the update contains
	Full     bool
	Took     time.Duration
	Triggers []time.Time // when its changes were made
}

// Applied counts a confirmed update.
func (s *Server) Applied(a Applied) {
	now := s.settings.Now()
	changes := s.settings.Tracker.Changes()
	s.mu.Lock()
	s.progress.confirm(a.Families, now)
	s.changes = changes
	s.mu.Unlock()
	s.metrics.countApplied(a, now)
	s.observe()
}

// Failed counts an update that failed as a whole.
func (s *Server) Failed() { s.metrics.failures.Inc() }

// observe reads the state of the dataplane that should serve, and checks whether a change waits.
func (s *Server) observe() {
	s.observing.Lock() // an older result must not overwrite a newer one
	defer s.observing.Unlock()
	var dataplane Dataplane
	changes := s.settings.Tracker.Changes() // read this before what is owed, so that a change in between is at most counted as owed
	synced, open := s.settings.Tracker.HasSynced(), s.settings.Tracker.Open()
	if dataplanes := s.settings.Dataplanes(); len(dataplanes) > 0 {
		dataplane = dataplanes[0]
	}
	now := s.settings.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known.Dataplane, s.known.Synced, s.observed = dataplane, synced, now
	if open {
		s.open = now
	}
	s.progress.update(dataplane, synced, changes, now)
}

// A binding is an address at which the server listens.
type binding struct {
	network string       // empty means tcp, where [::] includes IPv4
	addr    string       // host:port; empty means not served
	what    string       // the setting, or the port of a Service
	reason  string       // of the notice that it cannot be bound
	object  string       // of that notice: the Service; empty for a setting
	handler http.Handler // answers the requests
}

// Run serves until ctx ends, or until an address of the settings cannot be bound and HardFail is set.
func (s *Server) Run(ctx context.Context) error {
	own := []binding{
		{addr: s.settings.Healthz, what: "healthzBindAddress", reason: ProbesNotServed, handler: s.probes()},
		{addr: s.settings.Metrics, what: "metricsBindAddress", reason: MetricsNotServed, handler: s.Endpoints()},
		{addr: s.settings.Web, what: "webBindAddress", reason: WebNotServed, handler: s.settings.Pages},
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	err := s.bind(slices.Concat(own, s.checkBindings()))
	for err == nil {
		select {
		case <-tick.C:
			s.observe()
			err = s.bind(slices.Concat(own, s.checkBindings()))
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	_ = s.bind(nil)
	return err
}

// bind opens and closes listeners so that exactly wanted is served. It reports addresses that cannot
// be bound, and returns the error of one of the settings if HardFail is set. A Service is served at all of
// its addresses or at none: otherwise the answer would depend on the address that a load balancer uses.
func (s *Server) bind(wanted []binding) error {
	s.closeExcept(wanted)
	var unbound []string
	failed := make(map[string]bool) // Services
	taken := make(map[string]bool)  // addresses of bindings before
	for _, b := range wanted {
		if b.addr == "" || failed[b.object] {
			continue
		}
		isOther := taken[b.addr]
		taken[b.addr] = true
		if s.servers[b.addr] != nil && !isOther {
			continue
		}
		l, err := net.Listen(cmp.Or(b.network, "tcp"), b.addr)
		if err == nil {
			s.servers[b.addr] = newHTTPServer(b.handler, s.settings.Log)
			go s.servers[b.addr].Serve(netutil.LimitListener(l, descriptors.Connections(mostConns))) // ends when the server is closed
			continue
		}
		err = fmt.Errorf("%s: %w", b.what, err)
		s.settings.Report(track.Notice{Warning: true, Reason: b.reason, Object: b.object, Message: fmt.Sprintf("%v; it is tried again each %s", err, interval)})
		if unbound = append(unbound, err.Error()); b.object != "" {
			failed[b.object] = true
		} else if s.settings.HardFail {
			return err
		}
	}
	s.closeExcept(slices.DeleteFunc(wanted, func(b binding) bool { return failed[b.object] }))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unbound, s.unboundChecks = unbound, len(failed)
	return nil
}

// closeExcept closes the listeners that are not in wanted.
func (s *Server) closeExcept(wanted []binding) {
	stays := make(map[string]bool, len(wanted))
	for _, b := range wanted {
		stays[b.addr] = true
	}
	for addr, server := range s.servers {
		if !stays[addr] {
			server.Close()
			delete(s.servers, addr)
		}
	}
}

// Unbound returns the addresses that cannot be bound now, with the reasons: those of the
// settings, and the Services' healthCheckNodePorts.
func (s *Server) Unbound() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unbound // the slice is replaced, never modified
}

// mostConns limits the connections of each listener of this package. Further ones wait in the
// kernel.
const mostConns = 64

// newHTTPServer returns a server with timeouts, so that no client can block it.
func newHTTPServer(h http.Handler, to *log.Logger) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      5 * time.Minute, // the longest duration of a profile
		IdleTimeout:       30 * time.Second,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          to,
	}
}
