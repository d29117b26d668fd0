// SPDX-License-Identifier: Apache-2.0

package trial

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A step is so many samples, one each second.
type step struct {
	times int
	of    Sample
}

// TestTrial plays samples through, each a second after the one before, and says how it ended and
// after how many.
func TestTrial(t *testing.T) {
	limits := Limits{For: 20 * time.Second, Begin: 10 * time.Second, Grace: 5 * time.Second}
	well := Sample{Healthy: true, Ready: true, Tried: 1}
	late := Sample{Ready: true, Tried: 1}
	away := Sample{Err: errors.New("nothing answers")}
	refused := Sample{Healthy: true, Ready: true, Tried: 1, Failed: []error{errors.New("connect to 10.96.0.1:443: refused")}}
	short := Sample{Healthy: true, Ready: true, Unserved: 3}
	shorter := Sample{Healthy: true, Ready: true, Unserved: 4}
	for name, tc := range map[string]struct {
		steps   []step
		samples int
		err     string // empty: it passed
	}{
		"well all the time":            {[]step{{21, well}}, 21, ""},
		"well after a while":           {[]step{{5, away}, {21, well}}, 26, ""},
		"never well":                   {[]step{{30, away}}, 10, "it was not well within 10s: nothing answers"},
		"not well in time":             {[]step{{11, late}}, 10, "it was not well within 10s: pointsman_healthy is 0"},
		"late for a moment":            {[]step{{3, well}, {4, late}, {14, well}}, 21, ""},
		"late for too long":            {[]step{{3, well}, {9, late}}, 9, "for 5s pointsman_healthy is 0"},
		"not ready":                    {[]step{{3, well}, {9, Sample{Healthy: true}}}, 9, "for 5s pointsman_ready is 0"},
		"away":                         {[]step{{3, well}, {9, away}}, 9, "for 5s nothing answers"},
		"late at its end":              {[]step{{18, well}, {4, late}, {1, well}}, 23, ""},
		"a connection failed":          {[]step{{3, well}, {1, refused}}, 4, "1 of 3 new connections failed, and 0 may: connect to 10.96.0.1:443: refused"},
		"before it was well, none is":  {[]step{{1, Sample{Tried: 1, Failed: refused.Failed}}, {21, well}}, 22, ""},
		"some were unserved before it": {[]step{{21, short}}, 21, ""},
		"more are unserved":            {[]step{{1, short}, {9, shorter}}, 7, "for 5s pointsman_unserved rose from 3 to 4"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Unix(0, 0)
			trial := New(limits, now)
			n := 0
			for _, s := range tc.steps {
				for range s.times {
					n++
					now = now.Add(time.Second)
					s.of.At = now
					over, err := trial.Add(s.of)
					if !over {
						continue
					}
					if n != tc.samples || (err == nil) != (tc.err == "") || err != nil && !strings.Contains(err.Error(), tc.err) {
						t.Errorf("it was over after %d samples: %v; want %d: %s", n, err, tc.samples, tc.err)
					}
					return
				}
			}
			t.Errorf("after %d samples it goes on", n)
		})
	}
}

// TestTrialAllows so many connections that fail.
func TestTrialAllows(t *testing.T) {
	trial := New(Limits{For: time.Hour, Failures: 1}, time.Unix(0, 0))
	refused := Sample{At: time.Unix(1, 0), Healthy: true, Ready: true, Tried: 1, Failed: []error{errors.New("refused")}}
	for i, want := range []bool{false, false, true} { // the first one is before it was well
		if over, err := trial.Add(refused); over != want || (err != nil) != want {
			t.Errorf("sample %d: over %v, %v", i, over, err)
		}
	}
}

const scraped = `# HELP pointsman_healthy 1 unless
pointsman_healthy 1
pointsman_ready 0
pointsman_unserved{plugin="iptables",why="conflict"} 7
pointsman_unserved{plugin="iptables",why="failed"} 2
pointsman_unserved{plugin="iptables",why="quarantined"} 1
rest_client_requests_total{code="200",host="a b"} 4
`

// TestSample reads metrics as a host serves them, and connects to frontends.
func TestSample(t *testing.T) {
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(scraped))
	}))
	defer host.Close()
	frontend, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer frontend.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	s := Sampler{host.URL + "/metrics", []string{frontend.Addr().String(), closed.Addr().String()}}.Sample(t.Context())
	if s.Err != nil || !s.Healthy || s.Ready || s.Unserved != 3 || s.Tried != 2 || len(s.Failed) != 1 || !strings.Contains(s.Failed[0].Error(), closed.Addr().String()) {
		t.Errorf("it sees %+v", s)
	}
	if s := (Sampler{URL: host.URL + "/other"}).Sample(t.Context()); s.Err == nil || !strings.Contains(s.Err.Error(), "404") {
		t.Errorf("of another page it says %v", s.Err)
	}
	host.Close()
	if s := (Sampler{URL: host.URL + "/metrics"}).Sample(t.Context()); s.Err == nil {
		t.Error("where nothing answers it says nothing")
	}
	if err := parse(strings.NewReader("up 1\n"), &s); err == nil || !strings.Contains(err.Error(), "is it pointsman") {
		t.Errorf("of another program's metrics it says %v", err)
	}
}
