// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/pprof"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"
)

// An answer is the body of a probe's response. All fields but Ready are kube-proxy's.
type answer struct {
	LastUpdated  time.Time                 `json:"lastUpdated"`
	CurrentTime  time.Time                 `json:"currentTime"`
	NodeEligible *bool                     `json:"nodeEligible,omitempty"`
	Ready        *bool                     `json:"ready,omitempty"`
	Healthy      bool                      `json:"healthy"`
	Status       map[string]familyProgress `json:"status,omitempty"`
}

// familyProgress is the state of one IP family.
type familyProgress struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// Names of the probes, in paths and in metrics.
const (
	healthz = "healthz"
	livez   = "livez"
	readyz  = "readyz"
)

// probe returns the current answer of a probe, and whether it is good. It never blocks: it uses
// the state of the last observation.
func (s *Server) probe(which string) (a answer, good bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.settings.Now()
	j := Assess(s.facts(now))
	a = answer{LastUpdated: s.progress.confirmed, CurrentTime: now, Healthy: j.Healthy, Status: make(map[string]familyProgress)}
	for _, f := range s.progress.families {
		a.Status[familyName(f)] = familyProgress{LastUpdated: s.progress.confirmed, Healthy: a.Healthy}
	}
	switch which {
	case healthz: // for load balancers
		a.NodeEligible = &j.Eligible
		good = j.Healthy && j.Eligible
	case readyz:
		a.Ready = &j.Ready
		good = j.Ready
	case livez: // the kubelet restarts the host for it, so it ignores lateness: a restart would make that worse
		good = j.Live
	}
	if good && j.Healthy {
		// kube-proxy used to set LastUpdated to the time of its last check of the rules, which
		// was always recent. Clients still expect that for a healthy node.
		a.LastUpdated = now
	}
	return a, good
}

func (s *Server) probes() http.Handler {
	mux := http.NewServeMux()
	for _, which := range []string{healthz, livez, readyz} {
		mux.HandleFunc("/"+which, func(w http.ResponseWriter, _ *http.Request) {
			a, good := s.probe(which)
			code := http.StatusOK
			if !good {
				code = http.StatusServiceUnavailable
			}
			s.metrics.countProbe(which, code, good)
			text, err := json.Marshal(a)
			write(w, code, text, err)
		})
	}
	return mux
}

// write writes JSON, or err if it is set.
func write(w http.ResponseWriter, code int, text []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeBody(w, code, "application/json", text)
}

func writeText(w http.ResponseWriter, text string) {
	writeBody(w, http.StatusOK, "text/plain; charset=utf-8", []byte(text))
}

func writeBody(w http.ResponseWriter, code int, kind string, body []byte) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // an error means that the client has gone
}

// Endpoints returns the handler for metricsBindAddress.
func (s *Server) Endpoints() http.Handler {
	byPath := map[string]http.HandlerFunc{
		"/healthz":      func(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok") },
		"/metrics":      s.Metrics().ServeHTTP,
		"/metrics/slis": promhttp.HandlerFor(s.metrics.slis, promhttp.HandlerOpts{}).ServeHTTP,
		"/proxyMode":    func(w http.ResponseWriter, _ *http.Request) { writeText(w, s.settings.Mode()) },
		"/configz":      s.configz,
		"/flagz":        s.flagz,
		"/statusz":      nil,
	}
	if s.settings.Profiling { // optional, because it reveals and changes more than a scrape should
		maps.Copy(byPath, map[string]http.HandlerFunc{
			"/debug/pprof/":        pprof.Index,
			"/debug/pprof/cmdline": pprof.Cmdline,
			"/debug/pprof/profile": pprof.Profile,
			"/debug/pprof/symbol":  pprof.Symbol,
			"/debug/pprof/trace":   pprof.Trace,
			"/debug/flags/v":       s.setLevel,
		})
	}
	paths := slices.Sorted(maps.Keys(byPath))
	byPath["/statusz"] = s.statusz(paths)
	mux := http.NewServeMux()
	for path, serve := range byPath {
		mux.HandleFunc(path, serve)
	}
	return mux
}

// Metrics returns the handler of /metrics.
func (s *Server) Metrics() http.Handler {
	return promhttp.HandlerFor(s.metrics.all, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4})
}

// Gather implements prometheus.Gatherer. It returns the metrics of /metrics.
func (s *Server) Gather() ([]*dto.MetricFamily, error) { return s.metrics.all.Gather() }

// configz writes the current settings under the name of their API group, as Kubernetes
// components do, and a kube-proxy configuration file as it was given.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) {
	settings, err := s.settings.Config()
	text := fmt.Appendf(nil, `{"pointsman.dev":%s`, settings)
	if file := s.settings.KubeProxy(); file != nil {
		text = fmt.Appendf(text, `,"kubeproxy.config.k8s.io":%s`, file)
	}
	write(w, http.StatusOK, append(text, '}'), err)
}

// statusz writes the uptime of the host and its other paths.
func (s *Server) statusz(paths []string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		writeText(w, fmt.Sprintf("pointsman statusz\n\nbinaryVersion: %s\ngoVersion: %s\npaths: %s\nstartTime: %s\nuptimeSeconds: %d\n",
			s.settings.Version, runtime.Version(), strings.Join(paths, " "), s.started.UTC().Format(time.RFC3339), int64(s.settings.Now().Sub(s.started).Seconds())))
	}
}

// flagz writes the current settings as YAML.
func (s *Server) flagz(w http.ResponseWriter, _ *http.Request) {
	settings, err := s.settings.Config()
	if err == nil {
		settings, err = yaml.JSONToYAML(settings)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	writeText(w, "pointsman flagz\n\n"+string(settings))
}

// setLevel changes the log level, given as a Kubernetes verbosity or by name.
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

// levelOf returns the level for a verbosity.
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
