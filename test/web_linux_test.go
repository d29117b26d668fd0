// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// TestWeb looks at a running host by its admin socket, and by a port of the loopback interface
// with the token from its file.
func TestWeb(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	addr := s.net + "1:10246"
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.config("webBindAddress: " + addr + "\n")
	s.start()
	s.serving()

	owner := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.path("admin.sock"))
	}}}
	s.until("the admin socket shows the Service as served", func() error {
		return shows(&owner, "http://localhost/services", "ns/web:p/tcp4", "state good", s.net+"10:18080")
	})
	if err := shows(&owner, "http://localhost/", "Dataplane userspace"); err != nil {
		t.Error(err)
	}

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := http.Client{Jar: jar, Transport: &http.Transport{DisableKeepAlives: true}}
	site := "http://" + addr
	s.until("the port asks for the token", func() error { return shows(&browser, site+"/services", "<h1>Token</h1>") })
	info, err := os.Stat(s.path("state/web-token"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("the token's file: %v, %v", info, err)
	}
	token, err := os.ReadFile(s.path("state/web-token"))
	if err != nil {
		t.Fatal(err)
	}
	response, err := browser.PostForm(site+"/login", url.Values{"token": {string(token)}})
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	for path, parts := range map[string][]string{
		"/":                {"Dataplane userspace", "<dt>Revision</dt>"},
		"/services":        {"ns/web:p/tcp4", "1 port shown of 1 Service"},
		"/services/ns/web": {s.net + "101:", "class=\"served\"", "The dataplane has them as they should be."},
		"/explain?from=outside:192.0.2.7&to=" + s.net + "10:18080": {"Verdict <span class=\"state good\">forward</span>", s.net + "101:"},
		"/plugins":                {"<a href=\"/plugins/userspace/logs\"", "serving"},
		"/plugins/userspace/logs": {"Log of userspace"},
		"/events":                 {"DataplaneActive"},
		"/static/style.css":       {"prefers-color-scheme: dark"},
	} {
		if err := shows(&browser, site+path, parts...); err != nil {
			t.Error(err)
		}
	}
	if err := kept(t, s, &browser, site); err != nil {
		t.Error(err)
	}
	s.stop()
	s.start()
	s.until("the next host knows the browser", func() error { return shows(&browser, site+"/services", "ns/web:p/tcp4") })
}

// kept changes a Service, and waits for word of it.
func kept(t *testing.T, s *system, c *http.Client, site string) error {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, site+"/changes", nil)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	versions, changed := map[string]bool{}, false
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		version, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if versions[version] = true; len(versions) > 1 {
			return nil
		}
		if !changed {
			changed = true
			s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.102"))
		}
	}
	return fmt.Errorf("the stream of changes of %s ends with %d versions", site, len(versions))
}

// shows asks for a page, and looks for all parts of what is to be on it.
func shows(c *http.Client, url string, parts ...string) error {
	response, err := c.Get(url)
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
