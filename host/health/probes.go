// SPDX-License-Identifier: Apache-2.0

package health

import (
	"encoding/json"
	"net/http"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// An answer is the body that probes get. Its fields are kube-proxy's, and ready.
type answer struct {
	LastUpdated  time.Time                 `json:"lastUpdated"`
	CurrentTime  time.Time                 `json:"currentTime"`
	NodeEligible *bool                     `json:"nodeEligible,omitempty"`
	Ready        *bool                     `json:"ready,omitempty"`
	Healthy      bool                      `json:"healthy"`
	Status       map[string]familyProgress `json:"status,omitempty"`
}

// familyProgress is how one IP family does.
type familyProgress struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// The probes, as paths and in metrics.
const (
	healthz = "healthz"
	livez   = "livez"
	readyz  = "readyz"
)

// probe returns what one of the probes answers now, and whether that is good. It waits for
// nothing: it goes by what was looked at last.
func (s *Server) probe(which string) (a answer, good bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.settings.Now()
	j := Assess(s.facts(now))
	a = answer{LastUpdated: s.progress.last(), CurrentTime: now, Healthy: j.Healthy, Status: make(map[string]familyProgress)}
	for f, at := range s.progress.applied {
		a.Status[familyName(f)] = familyProgress{LastUpdated: at, Healthy: a.Healthy}
	}
	switch which {
	case healthz: // load balancers ask it
		a.NodeEligible = &j.Eligible
		good = j.Healthy && j.Eligible
	case readyz:
		a.Ready = &j.Ready
		good = j.Ready
	case livez: // the kubelet ends the host for it: a node that is late is late all the more then
		good = j.Live
	}
	if good && j.Healthy {
		// It used to say when the rules were last looked at, which was always a
		// moment ago; readers of it still expect that of a healthy node.
		a.LastUpdated = now
	}
	return a, good
}

// serveProbe answers one of the probes.
func (s *Server) serveProbe(which string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		a, good := s.probe(which)
		code := http.StatusOK
		if !good {
			code = http.StatusServiceUnavailable
		}
		s.metrics.probed(which, code, good)
		writeJSON(w, code, a)
	})
}

func writeJSON(w http.ResponseWriter, code int, body any) {
	text, err := json.Marshal(body)
	write(w, code, text, err)
}

// write writes JSON, or why there is none.
func write(w http.ResponseWriter, code int, text []byte, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client may be gone
}

func (s *Server) probes() http.Handler {
	mux := http.NewServeMux()
	for _, which := range []string{healthz, livez, readyz} {
		mux.Handle("/"+which, s.serveProbe(which))
	}
	return mux
}

// familyName returns f as Kubernetes writes it.
func familyName(f sdk.Family) string {
	if f == sdk.IPv6 {
		return "IPv6"
	}
	return "IPv4"
}
