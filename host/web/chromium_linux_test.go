// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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

// TestChromiumNames navigates to the content with the keyboard, and checks that everything has a name for a screen reader.
func TestChromiumNames(t *testing.T) {
	site, tab := serveSite(t, newSite(backendSaying(hostile))), chromium.Open(t)
	for _, path := range paths {
		tab.Go(site + path)
		names := tab.Named()
		for _, kind := range []string{"link", "button", "table", "image", "checkbox", "searchbox", "heading"} {
			if slices.Contains(names, kind) {
				t.Errorf("%s has a %s without a name, of\n%s", path, kind, strings.Join(names, "\n"))
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
