// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/chromium"
)

// paths has a path for each kind of page.
var paths = []string{"/", "/services", "/services/shop/web"}

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

// TestChromiumShows shows each page wide and narrow, light and dark: there are no errors, nothing extends beyond the
// edge, and the picture has the styles of its legend.
func TestChromiumShows(t *testing.T) {
	site, tab := serveSite(t, newSite(backendSaying(hostile))), chromium.Open(t)
	for _, size := range []struct {
		width, height int
		colours       string
	}{{1280, 900, "light"}, {1280, 900, "dark"}, {360, 700, "dark"}} {
		tab.Show(size.width, size.height, size.colours)
		for _, path := range paths {
			tab.Go(site + path)
			what := fmt.Sprintf("%s at %+v", path, size)
			if wrong := tab.Errors(); len(wrong) > 0 {
				t.Errorf("%s: the browser reports: %s", what, wrong)
			}
			if got := tab.Eval(`document.documentElement.scrollWidth`); got != fmt.Sprint(size.width) {
				t.Errorf("%s is %s pixels wide", what, got)
			}
			back := map[string]string{"light": "rgb(251, 251, 250)", "dark": "rgb(20, 23, 26)"}[size.colours]
			if got := tab.Eval(`getComputedStyle(document.body).backgroundColor`); got != back {
				t.Errorf("%s has the background %s, want %s", what, got, back)
			}
		}
	}
	if got := tab.Eval(`[...document.querySelectorAll(".way line")].map((l) => getComputedStyle(l).strokeWidth).join(" ")`); got != "1.5px 1.5px 3px 1.5px" {
		t.Errorf("the lines of the picture are %s wide: only superfluous lines must be thick", got)
	}
}

// TestChromiumNames checks what a screen reader says, and navigates to the content with the keyboard.
func TestChromiumNames(t *testing.T) {
	site, tab := serveSite(t, newSite(backendSaying(hostile))), chromium.Open(t)
	for path, want := range map[string][]string{
		"/":                  {"navigation Pages", "link Services", "heading 1 thing to look at", "image Sync latency over the last hour", "table Plugins", "table What happened, the latest first"},
		"/services":          {"search", "searchbox Name, address or port", "checkbox Only what is not served", "button Show", "table Each port of each Service", "rowheader shop/web:http/tcp4", "columnheader Frontends"},
		"/services/shop/web": {"heading shop/web", "image shop/web:http/tcp4: 2 frontends and 4 endpoints. In the dataplane 1 of the frontends differ from what should be.", "table Endpoints, and why each is used or not"},
	} {
		tab.Go(site + path)
		names := tab.Named()
		for _, name := range want {
			if !slices.Contains(names, name) {
				t.Errorf("%s has no %q for a screen reader, of\n%s", path, name, strings.Join(names, "\n"))
			}
		}
		for _, kind := range []string{"link", "button", "table", "image", "checkbox", "searchbox", "heading"} {
			if slices.Contains(names, kind) {
				t.Errorf("%s has a %s without a name", path, kind)
			}
		}
		for _, kind := range []string{"main", "banner", "contentinfo"} {
			if !slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, kind) }) {
				t.Errorf("%s has no %s", path, kind)
			}
		}
	}
	tab.Go(site + "/services")
	for _, want := range []string{"Skip to the content", "Overview", "Services"} {
		tab.Press("Tab", 9)
		if got := tab.Eval(`document.activeElement.textContent`); got != want {
			t.Errorf("the next key leads to %q, want %q", got, want)
		}
	}
}

// TestChromiumPictures writes the pictures of docs/status-page.md to the folder POINTSMAN_PICTURES.
func TestChromiumPictures(t *testing.T) {
	dir := os.Getenv("POINTSMAN_PICTURES")
	if dir == "" {
		t.Skip("needs POINTSMAN_PICTURES, a folder for the pictures")
	}
	drawn := newSite(backendSaying("the plugin does not answer"))
	drawn.node = "worker-3"
	for i := range samples {
		last := sample{}
		if i > 0 {
			last = drawn.history.all[i-1]
		}
		last.endpoints = 300 + math.Round(20*math.Sin(float64(i)/30)) + float64(i/120)*60
		if i%5 < 3 {
			last.updates++
			last.seconds += 0.004 + 0.003*math.Abs(math.Sin(float64(i)/7))
		}
		if i == 170 {
			last.failures += 2
		}
		drawn.history.all = append(drawn.history.all, last)
	}
	site, tab := serveSite(t, drawn), chromium.Open(t)
	for name, p := range map[string]struct {
		path, colours string
		width, height int
	}{
		"overview": {"/", "light", 1100, 900}, "service": {"/services/shop/web", "dark", 1100, 900}, "narrow": {"/services", "light", 400, 700},
	} {
		tab.Show(p.width, p.height, p.colours)
		tab.Go(site + p.path)
		if err := os.WriteFile(filepath.Join(dir, "status-page-"+name+".png"), tab.Picture(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
