// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/eventually"
)

const timeout = time.Minute

// A harness is a server with a fake clock, and the notices that it reported.
type harness struct {
	*Server
	tracker *track.Tracker

	mu         sync.Mutex
	now        time.Time
	dataplanes []Dataplane
	fault      string
	level      string
	notices    []track.Notice
}

func newHarness(edits ...func(*Settings)) *harness {
	b := &harness{tracker: track.New(nil), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), dataplanes: []Dataplane{{Name: "iptables", State: Serving, Up: true, Filled: true, Active: true}}}
	b.tracker.Configure(track.Facts{NodeName: "n1"})
	b.tracker.Synced()
	s := Settings{
		Mode: func() string { return "iptables" }, Version: "v1.2.3", Period: 30 * time.Second, Tracker: b.tracker,
		Dataplanes: func() []Dataplane { b.mu.Lock(); defer b.mu.Unlock(); return slices.Clone(b.dataplanes) },
		Fault:      func() string { b.mu.Lock(); defer b.mu.Unlock(); return b.fault },
		Events:     func() map[string]int { return map[string]int{"PluginDown": 3} },
		Warnings:   func() map[string]int { return nil },
		Config:     func() ([]byte, error) { return []byte(`{"mode":"iptables"}`), nil },
		KubeProxy:  func() []byte { return nil },
		Level:      func(l string) error { b.level = l; return nil },
		Report:     func(n track.Notice) { b.mu.Lock(); defer b.mu.Unlock(); b.notices = append(b.notices, n) },
		Log:        log.New(io.Discard, "", 0),
		Now:        func() time.Time { b.mu.Lock(); defer b.mu.Unlock(); return b.now },
	}
	for _, edit := range edits {
		edit(&s)
	}
	b.Server = New(s)
	return b
}

// pass advances the clock, and observes the dataplane each second.
func (b *harness) pass(d time.Duration) {
	for range int(d / time.Second) {
		b.mu.Lock()
		b.now = b.now.Add(time.Second)
		b.mu.Unlock()
		b.observe()
	}
}

func (b *harness) setDataplane(edit func(*Dataplane)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	edit(&b.dataplanes[0])
}

func (b *harness) reasons() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, n := range b.notices {
		all = append(all, n.Reason)
	}
	return all
}

func ask(h http.Handler, method, path, body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w
}

// codes returns the status codes of the three probes.
func (b *harness) codes() string {
	b.observe()
	var all []string
	for _, path := range []string{"/healthz", "/livez", "/readyz"} {
		all = append(all, fmt.Sprint(ask(b.Server.probes(), "GET", path, "").Code))
	}
	return strings.Join(all, " ")
}

// TestProbes follows the probes of a node. The codes are those of healthz, livez and readyz.
func TestProbes(t *testing.T) {
	b := newHarness()
	both := []sdk.Family{sdk.IPv4, sdk.IPv6}
	owed := func(since time.Time) { b.setDataplane(func(p *Dataplane) { p.Since = since; p.Pending = 1 }) }
	served := func() { b.setDataplane(func(p *Dataplane) { p.Since, p.Pending = time.Time{}, 0 }) }
	b.setDataplane(func(p *Dataplane) { p.Filled = false })
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"the host starts", func() {}, "200 200 503"},
		{"the first update is slow", func() { b.pass(59 * time.Second) }, "200 200 503"},
		{"the first update is late", func() { b.pass(time.Second) }, "503 200 503"},
		{"it stays late", func() { b.pass(5 * time.Minute) }, "503 200 503"},
		{"the first update is confirmed", func() {
			b.setDataplane(func(p *Dataplane) { p.Filled = true })
			b.Applied(Applied{Families: both, Full: true})
		}, "200 200 200"},
		{"nothing changes for an hour", func() { b.pass(time.Hour) }, "200 200 200"},
		{"a change waits", func() { owed(b.now); b.pass(59 * time.Second) }, "200 200 200"},
		{"the change waits for two periods", func() { b.pass(time.Second) }, "503 200 503"},
		{"it is confirmed, and another change has waited for less", func() { owed(b.now.Add(-30 * time.Second)); b.Applied(Applied{Families: both[:1]}) }, "200 200 200"},
		{"the other change waits for too long", func() { b.pass(30 * time.Second) }, "503 200 503"},
		{"it is confirmed", func() { served(); b.Applied(Applied{Families: both[:1]}) }, "200 200 200"},
		{"the autoscaler will remove the node", func() { b.SetNode(true, false) }, "503 200 200"},
		{"the autoscaler keeps the node", func() { b.SetNode(false, false) }, "200 200 200"},
		{"the plugin is away, nothing changes", func() { b.setDataplane(func(p *Dataplane) { p.Up, p.Filled = false, false }); b.pass(time.Hour) }, "200 200 503"},
		{"it is back, and a Full takes long", func() { b.setDataplane(func(p *Dataplane) { p.Up = true; p.Since = b.now }); b.pass(5 * time.Minute) }, "200 200 503"},
		{"the Full fails", func() { b.setDataplane(func(p *Dataplane) { p.Failure = "busy" }); b.pass(30 * time.Second) }, "200 200 503"},
		{"the plugin ends each time", func() { b.setDataplane(func(p *Dataplane) { p.Up, p.Failure = false, "" }); b.pass(31 * time.Second) }, "503 200 503"},
		{"the Full is confirmed", func() { b.setDataplane(func(p *Dataplane) { p.Up, p.Filled = true, true }); served() }, "200 200 200"},
		{"the plugin is away, and something changes", func() {
			b.setDataplane(func(p *Dataplane) { p.Up, p.Filled = false, false })
			b.tracker.SetService(service("a", 0))
			b.pass(30 * time.Second)
		}, "200 200 503"},
		{"the change waits for too long", func() { b.pass(40 * time.Second) }, "503 200 503"},
		{"the plugin is back", func() {
			b.setDataplane(func(p *Dataplane) { p.Up, p.Filled = true, true })
			b.Applied(Applied{Families: both, Full: true})
		}, "200 200 200"},
		{"another process is the writer", func() { b.setDataplane(func(p *Dataplane) { p.NoWriter = "pid 7 is" }); b.pass(time.Second) }, "200 200 503"},
		{"that takes too long", func() { b.pass(time.Minute) }, "503 200 503"},
		{"the plugin is the writer again", func() { b.setDataplane(func(p *Dataplane) { p.NoWriter = "" }) }, "200 200 200"},
		{"a relay is away, and serves nothing", func() {
			b.setDataplane(func(p *Dataplane) { p.Up, p.Filled, p.Mortal = false, false, true })
			b.pass(70 * time.Second)
		}, "503 200 503"},
		{"the period is longer now", func() { b.SetPeriods(0, time.Minute) }, "200 200 503"},
		{"the loop that runs the process is stuck", func() { b.setDataplane(func(p *Dataplane) { p.Looked = b.now }); b.pass(62 * time.Second) }, "503 503 503"},
	} {
		step.do()
		if got := b.codes(); got != step.want {
			t.Errorf("%s: %s, want %s", step.what, got, step.want)
		}
	}
}

// TestProbeBodies compares the bodies with kube-proxy's, byte for byte.
func TestProbeBodies(t *testing.T) {
	b := newHarness()
	b.Applied(Applied{Families: []sdk.Family{sdk.IPv4}, Full: true})
	b.pass(time.Second)
	status := `"status":{"IPv4":{"lastUpdated":"2026-01-02T03:04:05Z","healthy":true}}}`
	now := `{"lastUpdated":"2026-01-02T03:04:06Z","currentTime":"2026-01-02T03:04:06Z",`
	for path, want := range map[string]string{
		"/healthz": now + `"nodeEligible":true,"healthy":true,` + status,
		"/livez":   now + `"healthy":true,` + status,
		"/readyz":  now + `"ready":true,"healthy":true,` + status,
	} {
		w := ask(b.Server.probes(), "GET", path, "")
		if got := w.Body.String(); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", path, got, want)
		}
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: header %v", path, w.Header())
		}
	}
	b.SetNode(true, false)
	want := `{"lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T03:04:06Z","nodeEligible":false,"healthy":true,` + status
	if got := ask(b.Server.probes(), "GET", "/healthz", "").Body.String(); got != want {
		t.Errorf("not eligible:\n%s\nwant\n%s", got, want)
	}
}

// TestEndpoints requests each path of the metrics server.
func TestEndpoints(t *testing.T) {
	b := newHarness(func(s *Settings) {
		s.Profiling = true
		s.Config = func() ([]byte, error) {
			return []byte(`{"mode":"iptables","logging":{"level":"info"},"cidrs":["a","b"],"burst":10}`), nil
		}
		s.KubeProxy = func() []byte { return []byte(`{"mode":"ipvs"}`) }
	})
	h := b.Server.Endpoints()
	for _, test := range []struct{ path, kind, body string }{
		{"/healthz", "text/plain; charset=utf-8", "ok"},
		{"/proxyMode", "text/plain; charset=utf-8", "iptables"},
		{"/configz", "application/json", `{"pointsman.dev":{"mode":"iptables","logging":{"level":"info"},"cidrs":["a","b"],"burst":10},"kubeproxy.config.k8s.io":{"mode":"ipvs"}}`},
		{"/flagz", "text/plain; charset=utf-8", "pointsman flagz\n\nburst: 10\ncidrs:\n- a\n- b\nlogging:\n  level: info\nmode: iptables\n"},
		{"/statusz", "text/plain; charset=utf-8", "pointsman statusz\n"},
		{"/metrics", "text/plain; version=0.0.4", "# HELP go_gc"},
		{"/metrics/slis", "text/plain; version=0.0.4", ""},
		{"/debug/pprof/", "text/html", "<html>"},
		{"/debug/pprof/cmdline", "text/plain", ""},
	} {
		w := ask(h, "GET", test.path, "")
		if w.Code != 200 || !strings.HasPrefix(w.Header().Get("Content-Type"), test.kind) || !strings.HasPrefix(w.Body.String(), test.body) {
			t.Errorf("%s: %d, %s, %.60q; want %s, %q", test.path, w.Code, w.Header().Get("Content-Type"), w.Body, test.kind, test.body)
		}
	}
	if text := ask(h, "GET", "/statusz", "").Body.String(); !strings.Contains(text, "binaryVersion: v1.2.3\n") || !strings.Contains(text, "/metrics/slis") {
		t.Errorf("statusz says\n%s", text)
	}
	if w := ask(h, "PUT", "/debug/flags/v", "4"); w.Code != 200 || b.level != "debug" {
		t.Errorf("level %q after %d", b.level, w.Code)
	}
	if w := ask(h, "GET", "/debug/flags/v", ""); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("reading the level: %d", w.Code)
	}
	if got := ask(newHarness().Server.Endpoints(), "GET", "/configz", "").Body.String(); got != `{"pointsman.dev":{"mode":"iptables"}}` {
		t.Errorf("without a file of kube-proxy: %s", got)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/flags/v", "/nothing"} {
		if w := ask(newHarness().Server.Endpoints(), "GET", path, ""); w.Code != 404 {
			t.Errorf("without profiling %s: %d", path, w.Code)
		}
	}
}

// run runs b's servers until the test ends.
func (b *harness) run(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // ends with ctx
		defer close(ended)
		_ = b.Run(ctx)
	}()
	t.Cleanup(func() { cancel(); <-ended })
}

func until(t *testing.T, what string, get func() string, want string) {
	t.Helper()
	eventually.Succeeds(t, what, func() error {
		if got := get(); got != want {
			return fmt.Errorf("\n%s\nwant\n%s", got, want)
		}
		return nil
	})
}

// TestHardFail: an address that cannot be bound ends the servers only if HardFail is set.
func TestHardFail(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	b := newHarness(func(s *Settings) { s.Healthz, s.HardFail = taken.Addr().String(), true })
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if err := b.Run(ctx); err == nil || !strings.HasPrefix(err.Error(), "healthzBindAddress: ") || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Run returned %v", err)
	}
	if got := b.reasons(); !slices.Equal(got, []string{ProbesNotServed}) {
		t.Errorf("reported %v", got)
	}

	soft := newHarness(func(s *Settings) { s.Metrics = taken.Addr().String() })
	soft.run(t)
	until(t, "the address is taken", func() string { return fmt.Sprint(len(soft.Unbound())) }, "1")
	if got := soft.Unbound(); !strings.HasPrefix(got[0], "metricsBindAddress: listen tcp ") || soft.reasons()[0] != MetricsNotServed {
		t.Errorf("unbound: %v, reported %v", got, soft.reasons())
	}
	taken.Close()
	until(t, "it is free again", func() string { return fetch("http://" + taken.Addr().String() + "/healthz") }, "200  ok")
	if got := soft.Unbound(); len(got) > 0 {
		t.Errorf("unbound: %v", got)
	}
}

// TestIdleConnections: clients that use all connections of one server do not delay probes, and delay other clients of
// the same server only until they disconnect.
func TestIdleConnections(t *testing.T) {
	at := func() string { return fmt.Sprintf("127.0.0.1:%d", free(t)) }
	b := newHarness(func(s *Settings) { s.Healthz, s.Metrics = at(), at() })
	b.run(t)
	metrics := func() string { return fetch("http://" + b.settings.Metrics + "/healthz") }
	until(t, "metrics are served", metrics, "200  ok")
	var idle []net.Conn
	for range 2 * mostConns {
		c, err := net.Dial("tcp4", b.settings.Metrics)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		idle = append(idle, c)
	}
	until(t, "the probes are served", func() string { return strings.Fields(fetch("http://"+b.settings.Healthz+"/livez") + " ")[0] }, "200")
	for _, c := range idle {
		c.Close()
	}
	until(t, "metrics are served again", metrics, "200  ok")
}
