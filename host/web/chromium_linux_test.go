// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/chromium"
)

// paths are those of every kind of page.
var paths = []string{"/", "/services", "/services/shop/web", "/explain?from=10.1.2.3&to=10.96.0.10:80", "/plugins", "/plugins/iptables/logs", "/events"}

// serveSite serves pages until the test ends.
func serveSite(t testing.TB, h http.Handler) string {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return server.URL
}

// TestChromiumShows each page, wide and narrow, light and dark, with scripts and without: nothing is
// wrong with it, and nothing stands beyond the edge.
func TestChromiumShows(t *testing.T) {
	site, tab := serveSite(t, newSite().Handler()), chromium.Open(t)
	for _, size := range []struct {
		width, height int
		colours       string
		scripts       bool
	}{{1280, 900, "light", true}, {1280, 900, "dark", false}, {360, 700, "dark", true}} {
		tab.Scripts(size.scripts)
		tab.Show(size.width, size.height, size.colours)
		for _, path := range paths {
			tab.Go(site + path)
			what := fmt.Sprintf("%s at %+v", path, size)
			if wrong := tab.Errors(); len(wrong) > 0 {
				t.Errorf("%s: the browser complains: %s", what, wrong)
			}
			if got := tab.Eval(`document.documentElement.scrollWidth`); got != fmt.Sprint(size.width) {
				t.Errorf("%s is %s pixels wide", what, got)
			}
			back := map[string]string{"light": "rgb(251, 251, 250)", "dark": "rgb(20, 23, 26)"}[size.colours]
			if got := tab.Eval(`getComputedStyle(document.body).backgroundColor`); got != back {
				t.Errorf("%s stands on %s, want %s", what, got, back)
			}
		}
	}
}

// TestChromiumNames looks for what a screen reader says of the pages, and walks to their content by the
// keyboard alone.
func TestChromiumNames(t *testing.T) {
	site, tab := serveSite(t, newSite().Handler()), chromium.Open(t)
	for path, want := range map[string][]string{
		"/":                  {"navigation Pages", "link Services", "heading 1 thing to look at", "region Problems", "table What happened to it lately"},
		"/services":          {"search", "searchbox Name, address or port", "combobox State", "button Show", "table Each port of each Service", "rowheader shop/web:http/tcp4", "columnheader Frontends"},
		"/services/shop/web": {"heading shop/web", "image " + draw(detail(), webPort).Says, "textbox What becomes of a packet from", "combobox to", "table Endpoints, and why each is used or not"},
		"/explain":           {"textbox From", "textbox To", "button Explain"},
		"/plugins":           {"link Log of iptables"},
		"/events":            {"checkbox only warnings"},
	} {
		tab.Go(site + path)
		names := tab.Named()
		for _, name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no %q for a screen reader, of\n%s", path, name, strings.Join(names, "\n"))
			}
		}
		for _, kind := range []string{"main", "banner", "contentinfo", "link", "button", "table", "textbox", "combobox", "image", "checkbox", "searchbox", "heading"} {
			named := kind == "main" || kind == "banner" || kind == "contentinfo"
			if slices.Contains(names, kind) && !named {
				t.Errorf("%s has a %s without a name", path, kind)
			}
			if named && !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, kind) }) {
				t.Errorf("%s has no %s", path, kind)
			}
		}
	}
	tab.Go(site + "/services")
	tab.Press("Tab", 9)
	if got := tab.Eval(`document.activeElement.textContent`); got != "Skip to the content" {
		t.Errorf("the first key leads to %q", got)
	}
	for _, want := range []string{"Overview", "Services", "Explain"} {
		tab.Press("Tab", 9)
		if got := tab.Eval(`document.activeElement.textContent`); got != want {
			t.Errorf("the next key leads to %q, want %q", got, want)
		}
	}
}

// detail is the Service that the backend of the tests has.
func detail() admin.ServiceDetail {
	return admin.ServiceDetail{Service: admin.Service{Namespace: "shop", Name: "web"}}
}

// TestChromiumKeepsCurrent changes what the host says while a page is open: the page shows it, says so to a
// screen reader, and the keyboard stays where it is.
func TestChromiumKeepsCurrent(t *testing.T) {
	var well atomic.Bool
	b := backend()
	status := b.Status
	b.Status = func() admin.Status {
		s := status()
		if s.Healthy = well.Load(); s.Healthy {
			s.Warnings, s.Sync.Acked = nil, 42
		}
		return s
	}
	s := New("here", b)
	s.live.each = 10 * time.Millisecond
	site, tab := serveSite(t, s.Handler()), chromium.Open(t)
	tab.Go(site + "/")
	tab.Soon("the script runs", `document.getElementById("news").dataset.heading === "1 thing to look at"`)
	tab.Eval(`[...document.querySelectorAll("main a")].find((a) => a.getAttribute("href") === "/services?state=problems").focus()`)
	well.Store(true)
	tab.Soon("the heading is the new one", `document.querySelector("h1").textContent === "All is well"`)
	tab.Soon("a screen reader is told", `document.getElementById("news").textContent === "All is well"`)
	if got := tab.Eval(`document.activeElement.getAttribute("href")`); got != "/services?state=problems" {
		t.Errorf("the keyboard is at %s", got)
	}
	if text := tab.Eval(`document.querySelector("main").textContent`); !strings.Contains(text, "42 of 42 confirmed") {
		t.Errorf("it shows\n%s", text)
	}
	if wrong := tab.Errors(); len(wrong) > 0 {
		t.Errorf("the browser complains: %s", wrong)
	}
}

// TestChromiumToken enters the token as a person does.
func TestChromiumToken(t *testing.T) {
	h, token, _ := loopbackSite(t)
	site, tab := serveSite(t, h), chromium.Open(t)
	tab.Go(site + "/services")
	tab.Soon("the token is asked for", `document.activeElement.name === "token"`)
	tab.Errors()
	tab.Eval(`document.activeElement.value = "wrong"; document.forms[0].requestSubmit()`)
	tab.Soon("it is refused", `document.readyState === "complete" && document.querySelector("[role=alert]")?.textContent === "that is not the token"`)
	tab.Errors() // the browser logs an answer that refuses
	tab.Eval(fmt.Sprintf(`document.forms[0].token.value = %q; document.forms[0].requestSubmit()`, token))
	tab.Soon("it is taken", `document.readyState === "complete" && location.pathname === "/"`)
	if got := tab.Eval(`document.cookie + location.search`); got != "" {
		t.Errorf("a script can read %q", got)
	}
	if wrong := tab.Errors(); len(wrong) > 0 {
		t.Errorf("the browser complains: %s", wrong)
	}
}

// TestChromiumPictures draws the pictures of docs/status-page.md into the folder POINTSMAN_PICTURES.
func TestChromiumPictures(t *testing.T) {
	dir := os.Getenv("POINTSMAN_PICTURES")
	if dir == "" {
		t.Skip("set POINTSMAN_PICTURES to a folder: it is for a person to look at")
	}
	drawn := New("worker-3", backendSaying("the plugin does not answer"))
	drawn.now = newSite().now
	site, tab := serveSite(t, drawn.Handler()), chromium.Open(t)
	for name, p := range map[string]struct {
		path, colours string
		width, height int
	}{
		"overview": {"/", "light", 1100, 900}, "service": {"/services/shop/web", "dark", 1100, 1000}, "narrow": {"/services", "light", 400, 700},
	} {
		tab.Show(p.width, p.height, p.colours)
		tab.Go(site + p.path)
		if err := os.WriteFile(filepath.Join(dir, "status-page-"+name+".png"), tab.Picture(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkFirstPaint has a browser show a part of the list of 10,000 Services, and beside it the page of
// plugins, which is small: what the rest of the time is for is the browser's own.
func BenchmarkFirstPaint(b *testing.B) {
	all, backend := manyServices(10000), backend()
	backend.Services = func() []admin.Service { return all }
	site, tab := serveSite(b, New("here", backend).Handler()), chromium.Open(b)
	painted := func(path string) float64 {
		tab.Go(site + path)
		tab.Soon("it is painted", `performance.getEntriesByName("first-contentful-paint").length > 0`)
		ms, err := strconv.ParseFloat(tab.Eval(`performance.getEntriesByName("first-contentful-paint")[0].startTime`), 64)
		if err != nil {
			b.Fatal(err)
		}
		return ms
	}
	long, small := 0.0, 0.0
	for b.Loop() {
		long += painted("/services")
		small += painted("/plugins")
	}
	b.ReportMetric(long/float64(b.N), "ms-to-first-paint")
	b.ReportMetric(long/small, "x-small-page")
}
