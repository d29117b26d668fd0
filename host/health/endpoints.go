// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// profileTime is as long as one may ask a profile to take.
const profileTime = 5 * time.Minute

// An endpoint is one path of the metrics server.
type endpoint struct {
	path  string
	serve http.HandlerFunc
}

func (s *Server) endpoints() http.Handler {
	list := []endpoint{
		{"/healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok") }},
		{"/metrics", promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4}).ServeHTTP},
		{"/metrics/slis", promhttp.HandlerFor(s.metrics.slis, promhttp.HandlerOpts{}).ServeHTTP},
		{"/proxyMode", func(w http.ResponseWriter, _ *http.Request) { writeText(w, s.settings.Mode()) }},
		{"/configz", s.configz},
		{"/flagz", s.flagz},
	}
	if s.settings.Profiling {
		list = append(list, s.profiles()...)
	}
	paths := []string{"/statusz"}
	mux := http.NewServeMux()
	for _, p := range list {
		mux.HandleFunc(p.path, p.serve)
		paths = append(paths, p.path)
	}
	slices.Sort(paths)
	mux.HandleFunc("/statusz", func(w http.ResponseWriter, _ *http.Request) { s.statusz(w, paths) })
	return mux
}

// profiles returns Go's, and the switch of the log's level: both show, or change, more
// than a scrape should.
func (s *Server) profiles() []endpoint {
	long := func(h http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(profileTime))
			h(w, r)
		}
	}
	return []endpoint{
		{"/debug/pprof/", long(pprof.Index)},
		{"/debug/pprof/cmdline", pprof.Cmdline},
		{"/debug/pprof/profile", long(pprof.Profile)},
		{"/debug/pprof/symbol", pprof.Symbol},
		{"/debug/pprof/trace", long(pprof.Trace)},
		{"/debug/flags/v", s.setLevel},
	}
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = io.WriteString(w, text) // the client may be gone
}

// configz is the settings in force, under the name of their group, as each
// component of Kubernetes shows its own.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	settings, err := s.settings.Config()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	fmt.Fprintf(w, `{"pointsman.dev":%s}`, settings)
}

// flagz is the same, for users.
func (s *Server) flagz(w http.ResponseWriter, _ *http.Request) {
	settings, err := s.settings.Config()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeText(w, "pointsman flagz\n\n"+string(settings)+"\n")
}

// statusz is how the host does, for users.
func (s *Server) statusz(w http.ResponseWriter, paths []string) {
	var b strings.Builder
	line := func(key, format string, args ...any) {
		fmt.Fprintf(&b, "%-12s %s\n", key+":", fmt.Sprintf(format, args...))
	}
	b.WriteString("pointsman statusz\nFor people: the lines may change. Programs ask /metrics, or pointsman status -o json.\n\n")
	now := s.settings.Now()
	j := s.Assess()
	line("Version", "%s", s.settings.Version)
	line("Go", "%s", runtime.Version())
	line("Started", "%s (%s ago)", s.started.UTC().Format(time.RFC3339), now.Sub(s.started).Round(time.Second))
	line("Mode", "%s", s.settings.Mode())
	line("Ready", "%v", j.Ready)
	line("Healthy", "%v", j.Healthy)
	for _, f := range j.Findings {
		line("Warning", "%s %s", f.Code, f.Text)
	}
	if fault := s.settings.Fault(); fault != "" {
		line("Source", "%s", fault)
	}
	for _, p := range s.settings.Dataplanes() {
		line("Plugin", "%s: up %v, active %v, restarts %d, revision %d of %d, pending %d, not served %d", p.Name, p.Up, p.Active, p.Restarts, p.Acked, p.Sent, p.Pending, p.Failed+p.Withheld+p.Kept)
	}
	counts := s.settings.Tracker.Counts()
	line("Services", "%d, with %d endpoints", counts.Services, counts.Endpoints)
	line("Paths", "%s", strings.Join(paths, " "))
	writeText(w, b.String())
}

// setLevel changes the log's level, as a number of Kubernetes' or by its name.
func (s *Server) setLevel(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		w.Header().Set("Allow", http.MethodPut)
		http.Error(w, "PUT a level", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	level := levelOf(strings.TrimSpace(string(body)))
	if err := s.settings.Level(level); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	writeText(w, "successfully set log level to "+level+"\n")
}

// levelOf returns the level that a verbosity comes to.
func levelOf(v string) string {
	switch v {
	case "0", "1", "2":
		return "info"
	case "3", "4":
		return "debug"
	case "5", "6", "7", "8", "9", "10":
		return "trace"
	}
	return v
}
