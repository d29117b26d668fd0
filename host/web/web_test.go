// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pointsman/pointsman/host/admin"
)

// noon is the time at which the tests render pages.
var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// hostile is text that a name or message from another program could contain.
const hostile = `<script>alert(1)</script>`

// webPort has an endpoint on this node, one that is missing in the dataplane, one that is unused, and a foreign one.
var webPort = admin.Port{
	Name: "http", Network: "tcp4", Frontends: []string{"cluster-ip 10.96.0.10:80", "node-port *:30080 local"},
	Cluster: []string{"10.244.1.7:8080 here", "10.244.2.7:8080"}, Local: []string{"10.244.1.7:8080 here"}, Ready: 2, Total: 3,
	Policies: []string{"cluster", "local"}, AffinitySeconds: 600, State: "served", Since: noon.Add(-time.Hour),
	Endpoints: []admin.Endpoint{
		{Address: "10.244.1.7:8080", Node: "here", Zone: "a", Ready: true, Serving: true},
		{Address: "10.244.2.7:8080", Node: "far", Zone: "b", Ready: true, Serving: true, NotLocal: "it is on node far"},
		{Address: "10.244.3.7:8080", Node: "far", NotCluster: "it is not ready", NotLocal: "it is not ready"},
	},
	Kernel: []admin.Programmed{
		{Frontend: "cluster-ip 10.96.0.10:80", Endpoints: []string{"10.244.1.7:8080", "10.9.9.9:8080"}, Differs: "expected: 10.244.1.7:8080, 10.244.2.7:8080"},
		{Frontend: "node-port *:30080 local", Endpoints: []string{"10.244.1.7:8080"}},
	},
}

// backendSaying returns a backend with an example of everything that the pages show. words are text of other programs.
func backendSaying(words string) admin.Backend {
	dead := webPort
	dead.Name, dead.State, dead.Why = "dead", "failed", words
	return admin.Backend{
		Status: func() admin.Status {
			return admin.Status{
				Node: admin.Node{Name: "here", Addrs: []string{"192.0.2.1", "2001:db8::1"}}, Mode: "iptables", Source: "kubernetes",
				Swap:     &admin.Swap{From: "iptables", To: "nftables", Why: "a user asked for it", Stage: "holding", Since: noon, Began: noon.Add(-5 * time.Second)},
				Sync:     admin.Sync{Sent: 42, Acked: 41, Pending: 1, Last: noon.Add(-2 * time.Second), TookMS: 3.5},
				Services: admin.Counts{Services: 2, Ports: 3, EndpointSlices: 2, Endpoints: 3},
				Unserved: []admin.Problem{{Service: "shop/web:dead/tcp4", Reason: "failed", Why: words}, {Service: "shop/b:x/tcp4", Reason: "failed", Why: words}},
				Warnings: []admin.Warning{{Code: "W004", Text: words, Try: "pointsman status -o yaml"}},
			}
		},
		Services: func() ([]admin.Service, string) {
			return []admin.Service{
				{Namespace: "shop", Name: "web", Ports: []admin.Port{webPort, dead}},
				{Namespace: "shop", Name: "none", Problems: []string{"it has no cluster IP"}},
			}, ""
		},
		Service: func(_ context.Context, namespace, name string) (admin.ServiceDetail, error) {
			if name != "web" {
				return admin.ServiceDetail{}, &admin.Error{Code: http.StatusNotFound, What: "no Service " + namespace + "/" + name, Why: "did you mean shop/web?"}
			}
			return admin.ServiceDetail{
				Service:        admin.Service{Namespace: namespace, Name: name, Ports: []admin.Port{webPort}},
				EndpointSlices: []string{"web-abc"}, HealthPort: 30999, LocalReady: 1,
				Events: []admin.Event{{Time: noon, Warning: true, Reason: "ServiceFailed", Object: "shop/web", Message: words, Count: 2}},
			}, nil
		},
		Plugins: func() []admin.Plugin {
			return []admin.Plugin{{Name: "iptables", State: "serving", Role: "active", PID: 42, Restarts: 3, Memory: 12 << 20, LastEnd: "signal: killed", EndedAt: noon.Add(-time.Minute)}, {Name: "ipvs", State: "unused"}}
		},
		Events: func() []admin.Event {
			return []admin.Event{{Time: noon.Add(-time.Hour), Reason: "PluginServing", Object: "iptables", Message: "first", Count: 1}, {Time: noon, Warning: true, Reason: "PluginDown", Object: "iptables", Message: "second " + words, Count: 7}}
		},
	}
}

// newSite returns a site that renders its pages at noon.
func newSite(b admin.Backend) *Site {
	s := New("here", b, prometheus.NewRegistry())
	s.now = func() time.Time { return noon }
	return s
}

// get requests a page as a browser on this machine.
func get(h http.Handler, path string, headers ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:10246"
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestContent checks the content of each page.
func TestContent(t *testing.T) {
	h := newSite(backendSaying(hostile))
	for _, tt := range []struct {
		path string
		code int
		says []string // regular expressions
	}{
		{"/", 200, []string{`<h1>1 thing to look at</h1>`, `<strong>W004</strong>`, `in the stage holding: a user asked for it`, `41 of 42 confirmed`, `1 Service port<`, `2s ago, in 3.5 ms`,
			`<td class="number">3</td><td class="number">12.0 MiB</td><td>1m0s ago: signal: killed`, `state unused">unused`, `<a href="/services/shop/web">shop/web:dead/tcp4</a>`, `<a href="/services/shop/b">`,
			`<a href="/services\?problems">2 not served`, `(?s)second.*first`, `Sync latency: nothing yet`}},
		{"/services", 200, []string{`<p>3 ports`, `<a href="/services/shop/web">shop/web:http/tcp4</a></th><td><span class="state served">served</span></td><td>1h0m0s</td><td class="number">2/3</td><td class="number">1</td><td>cluster, local</td><td>600 s</td><td>cluster-ip 10.96.0.10:80, node-port \*:30080 local</td>`,
			`<a href="/services/shop/none">shop/none</a></th><td><span class="state">not served</span></td><td colspan="6">it has no cluster IP`}},
		{"/services?problems=on", 200, []string{`<p>2 ports`, `name="problems" checked`}},
		{"/services?text=10.244.2.7", 200, []string{`<p>2 ports`, `value="10.244.2.7"`}},
		{"/services?text=nothing", 200, []string{`<p>0 ports`}},
		{"/services?text=%3Cscript%3E", 200, []string{`value="&lt;script&gt;"`}},
		{"/services/shop/web", 200, []string{`<h1>shop/web</h1>`, `web-abc`, `30999 answers with 1 endpoint`, `aria-label="shop/web:http/tcp4: 2 frontends and 4 endpoints. In the dataplane 1 of the frontends differ`,
			`class="missing"`, `class="extra"`, `class="served"`, `it is on node far`, `ServiceFailed`}},
		{"/services/shop/wbe", 404, []string{`<h1>no Service shop/wbe</h1>`, `did you mean shop/web\?`}},
		{"/nowhere", 404, []string{`no page /nowhere`}},
		{"/?reload", 200, []string{`<meta http-equiv="refresh" content="15">`, `<a href="\?">Stop reloading`}},
		{"/services?text=web", 200, []string{`<a href="\?reload=&amp;text=web">Reload every 15 seconds`}},
	} {
		w := get(h, tt.path)
		text := w.Body.String()
		if w.Code != tt.code {
			t.Errorf("%s: status %d, want %d\n%s", tt.path, w.Code, tt.code, text)
		}
		for _, want := range tt.says {
			if !regexp.MustCompile(want).MatchString(text) {
				t.Errorf("%s lacks %s:\n%s", tt.path, want, text)
			}
		}
		if strings.Contains(text, "<script") {
			t.Errorf("%s: text of other programs is not escaped:\n%s", tt.path, text)
		}
		if !strings.HasSuffix(strings.TrimSpace(text), "</html>") {
			t.Errorf("%s is not complete:\n%s", tt.path, text)
		}
	}
}

// TestManyServices: the page has the first rows of a long list, and their number.
func TestManyServices(t *testing.T) {
	b := backendSaying("")
	b.Services = func() (all []admin.Service, _ string) {
		for i := range 450 {
			all = append(all, admin.Service{Namespace: "ns", Name: fmt.Sprintf("s%03d", i), Ports: []admin.Port{{Network: "tcp4", State: "served"}}})
		}
		return all, ""
	}
	text := get(newSite(b), "/services?text=ns").Body.String()
	if !strings.Contains(text, "The first 200 of 450 ports") || strings.Count(text, "<tr>") != 201 {
		t.Errorf("%d rows of\n%s", strings.Count(text, "<tr>"), text)
	}
}

// TestAccessible checks what screen readers and keyboards need of each page.
func TestAccessible(t *testing.T) {
	h := newSite(backendSaying(hostile))
	for _, path := range []string{"/", "/services", "/services/shop/web", "/nowhere"} {
		text := get(h, path).Body.String()
		for _, once := range []string{`<html lang="en">`, "<main ", "<h1>", "<header>", "<footer>", `class="skip" href="#main"`} {
			if n := strings.Count(text, once); n != 1 {
				t.Errorf("%s has %s %d times", path, once, n)
			}
		}
		if tables := strings.Count(text, "<table"); strings.Count(text, "<caption>") != tables || strings.Count(text, `tabindex="0"`) < tables {
			t.Errorf("%s has tables without a caption, or that the keyboard cannot scroll", path)
		}
		if strings.Contains(text, "<th>") || strings.Count(text, "<th ") != strings.Count(text, "<th scope=") {
			t.Errorf("%s has cells of a head without a scope", path)
		}
		if regexp.MustCompile(`\s(style|on[a-z]+)="`).MatchString(text) || regexp.MustCompile(`(src|href)="(https?:)?//`).MatchString(text) {
			t.Errorf("%s needs content that its own policy forbids:\n%s", path, text)
		}
	}
}

// TestRefusals: requests from pages of other origins, requests for other host names, and methods that change something
// are refused. Each response has the headers that protect from other pages.
func TestRefusals(t *testing.T) {
	h := newSite(backendSaying(hostile))
	for _, tt := range []struct {
		method, host string
		headers      []string
		code         int
	}{
		{"GET", "127.0.0.1:10246", nil, 200},
		{"HEAD", "localhost:8080", nil, 200},
		{"GET", "LOCALHOST", nil, 200},
		{"GET", "[::1]:10246", nil, 200},
		{"GET", "127.9.9.9", nil, 200},
		{"GET", "localhost", []string{"Origin", "http://localhost"}, 200},
		{"GET", "localhost", []string{"Sec-Fetch-Site", "same-origin"}, 200},
		{"GET", "localhost", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"}, 200}, // the user follows a link
		{"GET", "localhost", []string{"Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"}, 403},
		{"GET", "localhost:10246", []string{"Origin", "http://localhost:8080"}, 403},
		{"GET", "localhost", []string{"Origin", "null"}, 403},
		{"GET", "evil.example:10246", nil, 403},
		{"GET", "localhost.evil.example", nil, 403},
		{"GET", "192.0.2.1:10246", nil, 403},
		{"GET", "", nil, 403},
		{"POST", "localhost", nil, 405},
		{"DELETE", "localhost", nil, 405},
	} {
		r := httptest.NewRequest(tt.method, "/services", nil)
		r.Host = tt.host
		for i := 0; i < len(tt.headers); i += 2 {
			r.Header.Set(tt.headers[i], tt.headers[i+1])
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != tt.code || tt.code != 200 && strings.Contains(w.Body.String(), "shop/web") {
			t.Errorf("%s to %q with %q: %d, want %d\n%s", tt.method, tt.host, tt.headers, w.Code, tt.code, w.Body)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s to %q: %s is %q, want %q", tt.method, tt.host, name, got, want)
			}
		}
	}
}

// TestReadsAreLimited: the host refuses most of many simultaneous requests that the plugin must answer.
func TestReadsAreLimited(t *testing.T) {
	h := newSite(backendSaying(hostile))
	last := 0
	for range 30 {
		last = get(h, "/services/shop/web").Code
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the last of 30 at once: %d", last)
	}
	if w := get(h, "/"); w.Code != http.StatusOK {
		t.Errorf("the overview, which needs no plugin: %d", w.Code)
	}
}

// TestCharts samples changing metrics and draws the hour.
func TestCharts(t *testing.T) {
	registry := prometheus.NewRegistry()
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "kubeproxy_sync_proxy_rules_duration_seconds"}, []string{"ip_family"})
	endpoints := prometheus.NewGauge(prometheus.GaugeOpts{Name: "pointsman_endpoints"})
	failures := prometheus.NewCounter(prometheus.CounterOpts{Name: "pointsman_sync_failures_total"})
	restarts := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "pointsman_plugin_restarts_total"}, []string{"plugin"})
	registry.MustRegister(took, endpoints, failures, restarts)
	s := New("here", backendSaying(""), registry)
	says := func() (all []string) {
		for _, c := range s.history.charts() {
			all = append(all, c.Title+": "+c.Says)
		}
		return all
	}
	s.history.sample()
	if got := fmt.Sprint(says()); got != "[Sync latency: nothing yet Endpoints: nothing yet Failures: nothing yet]" {
		t.Errorf("after the first sample: %s", got)
	}
	step := func(seconds ...float64) {
		for _, s := range seconds {
			took.WithLabelValues("IPv4").Observe(s)
		}
		s.history.sample()
	}
	endpoints.Set(7)
	restarts.WithLabelValues("iptables").Inc()
	failures.Add(2)
	step(0.010, 0.030)
	endpoints.Set(5)
	restarts.Reset() // the plugin is gone
	step()           // without an update
	step(0.005)
	want := "[Sync latency: 5.0 ms last, at most 20.0 ms Endpoints: 5 last, at most 7 Failures: 0 last, at most 3]"
	if got := fmt.Sprint(says()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if path := s.history.charts()[0].Path; path != "M237 2.0h1M239 44.0h1" {
		t.Errorf("a period without an update is no gap: %s", path)
	}
	if path := s.history.charts()[1].Path; path != "M237 2.0h1L238 18.0h1L239 18.0h1" {
		t.Errorf("the endpoints are drawn as %s", path)
	}
	for range 2 * samples {
		step(0.001)
	}
	if n := len(s.history.all); n != samples {
		t.Errorf("%d samples are kept, want %d", n, samples)
	}
	if got := says()[0]; got != "Sync latency: 1.0 ms last, at most 1.0 ms" {
		t.Errorf("after more than an hour: %s", got)
	}
	if text := get(s, "/").Body.String(); !strings.Contains(text, `<path d="M0 2.0h1L1 2.0h1`) {
		t.Errorf("the page has no chart of the hour:\n%s", text)
	}
}
