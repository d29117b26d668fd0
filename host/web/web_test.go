// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/host/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The time at which the pages of the tests are shown.
var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// hostile is what a name or message could hold that comes from elsewhere.
const hostile = `<script>alert(1)</script>`

// webPort has one endpoint that is missing in the dataplane, one that is not used, and a foreign one.
var webPort = admin.Port{
	Name: "http", Network: "tcp4", Frontends: []string{"cluster-ip 10.96.0.10:80", "node-port *:30080 local"},
	Cluster: []string{"10.244.1.7:8080", "10.244.2.7:8080"}, Local: []string{"10.244.1.7:8080"}, Ready: 2, Total: 3,
	Policies: []string{"cluster", "local"}, AffinitySeconds: 600, State: "served", Since: noon.Add(-time.Hour),
	Endpoints: []admin.Endpoint{
		{Address: "10.244.1.7:8080", Node: "here", Zone: "a", Ready: true, Serving: true},
		{Address: "10.244.2.7:8080", Node: "far", Zone: "b", Ready: true, Serving: true, NotLocal: "it is on node far"},
		{Address: "10.244.3.7:8080", Node: "far", NotCluster: "it is not ready", NotLocal: "it is not ready"},
	},
	Kernel: []admin.Programmed{
		{Frontend: "cluster-ip 10.96.0.10:80", Endpoints: []string{"10.244.1.7:8080", "10.9.9.9:8080"}, Differs: "to be served: 10.244.1.7:8080, 10.244.2.7:8080"},
		{Frontend: "node-port *:30080 local", Endpoints: []string{"10.244.1.7:8080"}},
	},
}

// backend answers with a bit of everything that the pages show, and with what could do harm.
func backend() admin.Backend { return backendSaying(hostile) }

// backendSaying answers with a bit of everything that the pages show, and words that come from elsewhere.
func backendSaying(words string) admin.Backend {
	dead := webPort
	dead.Name, dead.State, dead.Why = "dead", "failed", words
	return admin.Backend{
		Status: func() admin.Status {
			return admin.Status{
				Node: admin.Node{Name: "here", Addrs: []string{"192.0.2.1", "2001:db8::1"}}, Mode: "iptables", Source: "kubernetes",
				Dataplane: admin.Plugin{Name: "iptables", State: "serving", PID: 42, Version: "v1", Role: "active", Restarts: 3, LastEnd: "signal: killed", EndedAt: noon.Add(-time.Minute), Memory: 12 << 20},
				Swap:      &admin.Swap{From: "iptables", To: "nftables", Why: "a user asked for it", Stage: "holding", Since: noon, Began: noon.Add(-5 * time.Second)},
				Sync:      admin.Sync{Sent: 42, Acked: 41, Served: 41, Pending: 1, Last: noon.Add(-2 * time.Second), TookMS: 3.5},
				Services:  admin.Counts{Services: 2, Ports: 3, EndpointSlices: 2, Endpoints: 3},
				Unserved:  []admin.Problem{{Service: "shop/web:dead/tcp4", Reason: "failed", Why: words}, {Service: "shop/b:x/tcp4", Reason: "failed", Why: words}},
				Warnings:  []admin.Warning{{Code: "W004", Text: words, Try: "pointsman status -o yaml"}},
			}
		},
		Services: func() []admin.Service {
			return []admin.Service{
				{Namespace: "shop", Name: "web", Ports: []admin.Port{webPort, dead}},
				{Namespace: "shop", Name: "none", Problems: []string{"it has no cluster IP"}},
			}
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
		Explain: func(_ context.Context, q admin.Question) (admin.Explanation, error) {
			return admin.Explanation{
				Question: q, Service: "shop/web:http/tcp4", Steps: []admin.Step{{Question: "allowed", Answer: "yes: " + q.From.String()}},
				Verdict: "forward", Endpoints: []admin.Share{{Address: "10.244.1.7:8080", Share: 0.5, Masquerade: true}}, Unused: []admin.Unused{{Address: "10.244.3.7:8080", Why: "it is not ready"}},
			}, nil
		},
		Plugins: func() []admin.Plugin {
			return []admin.Plugin{{Name: "iptables", State: "serving", InUse: true, PID: 42, Restarts: 3, Memory: 12 << 20, LastEnd: "signal: killed", Path: "/usr/libexec/pointsman/pointsman-dataplane-iptables"}, {Name: "ipvs", State: "unused"}}
		},
		Events: func() []admin.Event {
			return []admin.Event{{Time: noon.Add(-time.Hour), Reason: "PluginServing", Object: "iptables", Message: "first", Count: 1}, {Time: noon, Warning: true, Reason: "PluginDown", Object: "iptables", Message: "second " + words, Count: 7}}
		},
		Logs: func(_ context.Context, name string, follow bool, line func(admin.LogLine) error) error {
			if name != "iptables" || follow {
				return admin.UnknownPlugin(name)
			}
			for n := range shownLines + 5 {
				if err := line(admin.LogLine{Time: noon, Level: "info", Message: fmt.Sprintf("line %d %s", n, words)}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// newSite returns pages that are shown at noon.
func newSite() *Site {
	s := New("here", backend())
	s.now = func() time.Time { return noon }
	return s
}

// get asks for a page, as a browser on this machine does.
func get(h http.Handler, path string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.Host = "127.0.0.1:10246"
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestContent asks for each page, and looks for what it is there for.
func TestContent(t *testing.T) {
	h := newSite().Handler()
	for _, tt := range []struct {
		path string
		code int
		says []string // regular expressions
	}{
		{"/", 200, []string{`<h1>1 thing to look at</h1>`, `<strong>W004</strong>`, `<li aria-current="step" class="now">holding</li>`, `class="past">verifying<`, `class="next">cutting<`,
			`41 of 42 confirmed`, `1 Service port<`, `2s ago</time>, in 3.5 ms`, `3; the last end .*signal: killed`, `12.0 MiB`, `href="/services/shop/web">shop/web:dead/tcp4</a>, <a href="/services/shop/b">`, `(?s)second.*first`}},
		{"/services", 200, []string{`3 ports shown of 2 Services`, `<a href="/services/shop/web">shop/web:http/tcp4</a></th><td><span class="state good">served</span></td><td>1h0m0s</td><td class="number">2/3</td><td class="number">1</td><td>cluster, local</td><td>10m0s</td><td>cluster-ip 10.96.0.10:80, node-port \*:30080 local</td>`, `shop/none</a></th><td><span class="state bad">not served</span></td><td colspan="6">it has no cluster IP`}},
		{"/services?state=problems", 200, []string{`2 ports shown`, `<option value="problems" selected>`}},
		{"/services?state=served&text=10.244.2.7", 200, []string{`1 port shown`, `value="10.244.2.7"`}},
		{"/services?text=nothing", 200, []string{`0 ports shown`}},
		{"/services/shop/web", 200, []string{`<h1>shop/web</h1>`, `web-abc`, `30999 answers with 1 endpoint`, `aria-label="shop/web:http/tcp4: 2 frontends lead to 4 endpoints, of which 2 may not be used. In the dataplane 1 of the frontends differ`,
			`class="missing"`, `class="extra"`, `class="served"`, `<option>10.96.0.10:80</option><option>192.0.2.1:30080</option>`, `it is on node far`, `ServiceFailed`}},
		{"/services/shop/wbe", 404, []string{`<h1>no Service shop/wbe</h1>`, `did you mean shop/web\?`}},
		{"/explain", 200, []string{`name="from"`}},
		{"/explain?from=10.1.2.3&to=10.96.0.10:80", 200, []string{`Verdict <span class="state good">forward`, `yes: 10.1.2.3`, `50%</td><td>this node`, `it is not ready`, `href="/services/shop/web"`}},
		{"/explain?from=web&to=" + url.QueryEscape(`"><script>`), 400, []string{`role="alert" class="wrong">&#34;web&#34; names no caller`, `value="&#34;&gt;&lt;script&gt;"`}},
		{"/plugins", 200, []string{`href="/plugins/iptables/logs"`, `signal: killed`, `12.0 MiB`, `state idle">unused`}},
		{"/plugins/iptables/logs", 200, []string{`line 504 `}},
		{"/plugins/acme/logs", 404, []string{`no plugin acme`}},
		{"/events", 200, []string{`(?s)second.*first`}},
		{"/nowhere", 404, []string{`no page /nowhere`}},
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
		if strings.Contains(text, "<script>") {
			t.Errorf("%s: what came from elsewhere is not escaped:\n%s", tt.path, text)
		}
		if !strings.HasSuffix(strings.TrimSpace(text), "</html>") {
			t.Errorf("%s ends in its middle:\n%s", tt.path, text)
		}
	}
	if text := get(h, "/events?warnings=1").Body.String(); strings.Contains(text, ">first<") || !strings.Contains(text, ">second ") {
		t.Errorf("only warnings were asked for:\n%s", text)
	}
	if text := get(h, "/plugins/iptables/logs").Body.String(); strings.Contains(text, "line 4 ") {
		t.Error("more lines of the log than the last ones are shown")
	}
}

// TestAccessible holds each page to what a screen reader and a keyboard need.
func TestAccessible(t *testing.T) {
	h := newSite().Handler()
	for _, path := range []string{"/", "/services", "/services/shop/web", "/explain?from=10.1.2.3&to=10.96.0.10:80", "/plugins", "/plugins/iptables/logs", "/events", "/nowhere"} {
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
		for _, m := range regexp.MustCompile(`<(input|select)\b`).FindAllStringIndex(text, -1) {
			if before := text[:m[0]]; strings.LastIndex(before, "<label>") <= strings.LastIndex(before, "</label>") {
				t.Errorf("%s has a field without a label: %.60s", path, text[m[0]:])
			}
		}
		ids := map[string]bool{}
		for _, m := range regexp.MustCompile(` id="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			if ids[m[1]] {
				t.Errorf("%s has the id %s twice", path, m[1])
			}
			ids[m[1]] = true
		}
		for _, m := range regexp.MustCompile(`aria-(?:labelledby|describedby)="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			if !ids[m[1]] {
				t.Errorf("%s is labelled by %s, which is not there", path, m[1])
			}
		}
		if regexp.MustCompile(`\s(style|on[a-z]+)="`).MatchString(text) || regexp.MustCompile(`(src|href)="(https?:)?//`).MatchString(text) {
			t.Errorf("%s needs what its own policy forbids:\n%s", path, text)
		}
	}
}

// TestHeaders are on every answer, also on one that refuses.
func TestHeaders(t *testing.T) {
	h, _, _ := loopbackSite(t)
	for path, code := range map[string]int{"/": 303, "/login": 200, "/static/style.css": 200, "/services": 303} {
		w := get(h, path)
		if w.Code != code {
			t.Errorf("%s: status %d, want %d", path, w.Code, code)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
			"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store", "Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
	}
}

// loopbackSite returns pages behind a token, the token, and its file.
func loopbackSite(t *testing.T) (h http.Handler, token, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "web-token")
	h, err := newSite().Loopback(path, -1)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return h, strings.TrimSpace(string(text)), path
}

// enter sends the form for the token.
func enter(h http.Handler, target, token string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodPost, target, strings.NewReader(url.Values{"token": {token}}.Encode()))
	r.Host = "127.0.0.1:10246"
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Origin", "http://127.0.0.1:10246")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestToken: without it no page is shown; it is taken from a form alone; and the cookie that follows
// is for this browser, for some hours, and not the token.
func TestToken(t *testing.T) {
	h, token, path := loopbackSite(t)
	for _, shown := range []string{"/", "/services", "/services/shop/web", "/explain", "/plugins", "/plugins/iptables/logs", "/events", "/nowhere"} {
		if w := get(h, shown); w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/login" || strings.Contains(w.Body.String(), "iptables") {
			t.Errorf("%s without a token: %d\n%s", shown, w.Code, w.Body)
		}
	}
	if w := get(h, "/login"); !strings.Contains(w.Body.String(), path) {
		t.Errorf("the form does not say where the token is:\n%s", w.Body)
	}
	for _, wrong := range []string{"", "x", token[1:], token + "0"} {
		if w := enter(h, "/login", wrong); w.Code != http.StatusForbidden || len(w.Result().Cookies()) > 0 || strings.Contains(w.Body.String(), token) {
			t.Errorf("the token %q: %d\n%s", wrong, w.Code, w.Body)
		}
	}
	if w := enter(h, "/login?token="+token, ""); w.Code != http.StatusForbidden {
		t.Errorf("the token in a URL is taken: %d", w.Code)
	}
	w := enter(h, "/login", " "+token+"\n")
	cookies := w.Result().Cookies()
	if w.Code != http.StatusSeeOther || w.Header().Get("Location") != "/" || len(cookies) != 1 {
		t.Fatalf("the token is not taken: %d, cookies %v\n%s", w.Code, cookies, w.Body)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Domain != "" || strings.Contains(c.String(), token) {
		t.Errorf("cookie %s", c)
	}
	with := func(value string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(&http.Cookie{Name: c.Name, Value: value}) }
	}
	if w := get(h, "/", with(c.Value)); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "iptables") {
		t.Errorf("with the cookie: %d\n%s", w.Code, w.Body)
	}
	end, mac, _ := strings.Cut(c.Value, ".")
	for _, forged := range []string{"", end, "9" + end + "." + mac, end + "." + strings.Repeat("0", len(mac)), "x." + mac, token, session(token, noon), session("", noon.Add(time.Hour))} {
		if w := get(h, "/", with(forged)); w.Code != http.StatusSeeOther {
			t.Errorf("the cookie %q is taken: %d", forged, w.Code)
		}
	}
}

// TestAttemptsAreBounded: of many attempts at once most are not even compared.
func TestAttemptsAreBounded(t *testing.T) {
	h, token, _ := loopbackSite(t)
	last := 0
	for range 30 {
		last = enter(h, "/login", "x").Code
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("the last of 30 attempts at once: %d", last)
	}
	if w := enter(h, "/login", strings.Repeat("x", 1<<20)); w.Code == http.StatusSeeOther || strings.Contains(w.Body.String(), token) {
		t.Errorf("a large form: %d", w.Code)
	}
}

// TestForeign refuses what a page of another origin, or a name that leads here, has a browser send.
func TestForeign(t *testing.T) {
	h, token, _ := loopbackSite(t)
	cookie := enter(h, "/login", token).Result().Cookies()[0]
	header := func(pairs ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.AddCookie(cookie)
			for i := 0; i < len(pairs); i += 2 {
				r.Header.Set(pairs[i], pairs[i+1])
			}
		}
	}
	name := func(host string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(cookie); r.Host = host }
	}
	method := func(m string) func(*http.Request) {
		return func(r *http.Request) { r.AddCookie(cookie); r.Method = m }
	}
	for what, tt := range map[string]struct {
		change func(*http.Request)
		code   int
	}{
		"own":                  {header(), 200},
		"a forwarded port":     {name("localhost:8080"), 200},
		"IPv6":                 {name("[::1]:10246"), 200},
		"no port":              {name("127.0.0.1"), 200},
		"own origin":           {header("Origin", "http://127.0.0.1:10246", "Sec-Fetch-Site", "same-origin"), 200},
		"typed":                {header("Sec-Fetch-Site", "none", "Sec-Fetch-Mode", "navigate"), 200},
		"a link":               {header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "navigate"), 200},
		"a name that leads":    {name("evil.example:10246"), 403},
		"like localhost":       {name("localhost.evil.example"), 403},
		"like an address":      {name("127.0.0.1.evil.example"), 403},
		"another address":      {name("192.0.2.1:10246"), 403},
		"no name":              {name(""), 403},
		"foreign origin":       {header("Origin", "http://evil.example"), 403},
		"another port":         {header("Origin", "http://127.0.0.1:3000"), 403},
		"null origin":          {header("Origin", "null"), 403},
		"a script elsewhere":   {header("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "cors"), 403},
		"a script beside":      {header("Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"), 403},
		"POST of what is read": {method(http.MethodPost), 405},
		"PUT":                  {method(http.MethodPut), 405},
		"DELETE":               {method(http.MethodDelete), 405},
	} {
		if w := get(h, "/services", tt.change); w.Code != tt.code {
			t.Errorf("%s: %d, want %d\n%s", what, w.Code, tt.code, w.Body)
		}
	}
}

// TestTokenFile: it is made once, kept by the next host, and made anew where others could have read
// it or it is damaged. Without it no page is shown, until it can be made.
func TestTokenFile(t *testing.T) {
	dir := t.TempDir()
	file := tokenFile{filepath.Join(dir, "web-token"), -1}
	first, err := file.load()
	if err != nil || len(first) != 64 {
		t.Fatalf("token %q, %v", first, err)
	}
	if again, err := file.load(); again != first || err != nil {
		t.Errorf("the next host has another token: %v", err)
	}
	if info, err := os.Stat(file.path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Chmod(file.path, 0o644); err != nil {
		t.Fatal(err)
	}
	second, err := file.load()
	if err != nil || second == first {
		t.Errorf("what others could read is still the token: %v", err)
	}
	for _, damaged := range []string{"", "short", strings.Repeat("z", 64), strings.Repeat("0", 62)} {
		if err := os.WriteFile(file.path, []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if token, err := file.load(); err != nil || len(token) != 64 || token == damaged {
			t.Errorf("of %q comes the token %q, %v", damaged, token, err)
		}
	}
	group := tokenFile{file.path, os.Getgid()}
	if _, err := group.load(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file.path); err != nil || info.Mode().Perm() != fs.FileMode(0o640) {
		t.Errorf("of adminGroup: mode %v, %v", info.Mode(), err)
	}

	later := filepath.Join(dir, "later", "web-token")
	h, err := newSite().Loopback(later, -1)
	if err == nil {
		t.Fatal("a token is written into a folder that is not there")
	}
	if w := get(h, "/"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "write the token") {
		t.Errorf("without a token: %d\n%s", w.Code, w.Body)
	}
	if w := enter(h, "/login", ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("without a token the empty one is compared: %d", w.Code)
	}
	if err := os.Mkdir(filepath.Dir(later), 0o700); err != nil {
		t.Fatal(err)
	}
	if w := get(h, "/"); w.Code != http.StatusSeeOther {
		t.Errorf("once it can be made: %d", w.Code)
	}
}

// TestReadsAreBounded: what has the dataplane read is not asked for again and again.
func TestReadsAreBounded(t *testing.T) {
	now := noon
	for _, path := range []string{"/services/shop/web", "/explain?from=10.1.2.3&to=10.96.0.10:80"} {
		s := newSite()
		s.reads = newRate(2, 10, func() time.Time { return now })
		h := s.Handler()
		for n := range 10 {
			if w := get(h, path); w.Code != http.StatusOK {
				t.Errorf("%s, time %d: %d", path, n, w.Code)
			}
		}
		if w := get(h, path); w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Errorf("%s once more: %d", path, w.Code)
		}
		now = now.Add(time.Second)
		if w := get(h, path); w.Code != http.StatusOK {
			t.Errorf("%s a second later: %d", path, w.Code)
		}
	}
}

// TestServicesInParts: a browser is given a part of a long list, and each part leads to those beside it,
// with what was asked for.
func TestServicesInParts(t *testing.T) {
	b := backend()
	b.Services = func() []admin.Service { return manyServices(481) }
	h := New("here", b).Handler()
	link := func(rel string, from int) string {
		return fmt.Sprintf(`href="/services?from=%d&amp;state=served&amp;text=service" rel="%s"`, from, rel)
	}
	for from, want := range map[string][]string{
		"":     {"1 to 200 of 481 ports, of 481 Services", link("next", 200)},
		"none": {"1 to 200 of 481 ports", link("next", 200)},
		"-7":   {"1 to 200 of 481 ports", link("next", 200)},
		"399":  {"201 to 400 of 481 ports", link("prev", 0), link("next", 400)},
		"400":  {"401 to 481 of 481 ports", link("prev", 200)},
		"9999": {"401 to 481 of 481 ports", link("prev", 200)},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/services?text=service&state=served&from="+from, nil))
		text := w.Body.String()
		for _, part := range want {
			if !strings.Contains(text, part) {
				t.Errorf("from %q there is no %q", from, part)
			}
		}
		if links := strings.Count(text, "rel=\"next\"") + strings.Count(text, "rel=\"prev\""); links != len(want)-1 {
			t.Errorf("from %q there are %d links", from, links)
		}
		rows := 200
		if strings.HasPrefix(want[0], "401") {
			rows = 81
		}
		if got := strings.Count(text, `<tr><th scope="row">`); got != rows {
			t.Errorf("from %q there are %d rows, want %d", from, got, rows)
		}
	}
}
