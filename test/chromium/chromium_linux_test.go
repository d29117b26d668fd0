// SPDX-License-Identifier: Apache-2.0

package chromium

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestTab looks for errors of a page, and for the names in it.
func TestTab(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "img-src 'none'")
		if r.URL.Path == "/wrong" {
			_, _ = io.WriteString(w, `<!doctype html><img src="/forbidden.png"><script>console.error("complaint"); throw new Error("thrown")</script>`)
			return
		}
		_, _ = io.WriteString(w, `<!doctype html><title>Good</title><h1>Heading</h1><button aria-label="Act">x</button>`)
	}))
	defer server.Close()
	defer server.CloseClientConnections()
	tab := Open(t)
	tab.Go(server.URL + "/wrong")
	var found []string
	eventually.Succeeds(t, "all that is wrong is found", func() error {
		found = append(found, tab.Errors()...)
		for _, want := range []string{"complaint", "thrown", "forbidden.png"} {
			if !strings.Contains(strings.Join(found, "\n"), want) {
				return fmt.Errorf("no %s in %s", want, found)
			}
		}
		return nil
	})
	tab.Go(server.URL + "/good")
	if names := tab.Named(); !slices.Contains(names, "heading Heading") || !slices.Contains(names, "button Act") {
		t.Errorf("named are %q", names)
	}
	if wrong := tab.Errors(); len(wrong) > 0 {
		t.Errorf("wrong with a good page: %s", wrong)
	}
}
