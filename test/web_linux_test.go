// SPDX-License-Identifier: Apache-2.0

package test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestWeb reads the status page of a running host.
func TestWeb(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	addr := s.net + "1:10246"
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.config("webBindAddress: " + addr + "\n")
	s.start()
	s.serving()
	site := "http://" + addr
	s.until("the Service is shown as served", func() error {
		return shows(site+"/services", "ns/web:p/tcp4", "state served", s.net+"10:18080")
	})
	for path, parts := range map[string][]string{
		"/":                 {"Mode userspace", "<dt>Revision</dt>", "Sync latency: ", "DataplaneActive"},
		"/services":         {"ns/web:p/tcp4", "<p>1 port of Services"},
		"/static/style.css": {"prefers-color-scheme: dark"},
	} {
		if err := shows(site+path, parts...); err != nil {
			t.Error(err)
		}
	}
	// The endpoint may be on this node; the picture shows it as served in any case.
	s.until("the picture has one line, of what is served", func() error {
		return shows(site+"/services/ns/web", s.net+"101:", `<line x1="340" y1="23" x2="560" y2="23" class="served"/>`, "The dataplane has them as they should be.")
	})
}

// shows reads a page, and returns an error if it lacks one of the parts.
func shows(url string, parts ...string) error {
	response, err := http.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	for _, part := range parts {
		if !strings.Contains(string(text), part) {
			return fmt.Errorf("%s: %s, without %q:\n%s", url, response.Status, part, text)
		}
	}
	return nil
}
