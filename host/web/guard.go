// SPDX-License-Identifier: Apache-2.0

package web

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/pointsman/pointsman/host/admin"
)

// withHeaders has a browser take nothing from elsewhere, keep nothing, and not show a page within
// another one.
func withHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; img-src 'self'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer a browser would not say of which origin the form for the token is
		h.Set("Cache-Control", "no-store")
		next.ServeHTTP(w, r)
	})
}

// guarded passes on what only asks, was meant for this machine, and does not come from a page of
// another origin.
func (s *Site) guarded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := refusal(r); err != nil {
			if err.Code == http.StatusMethodNotAllowed {
				w.Header().Set("Allow", "GET, HEAD")
			}
			s.fail(w, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refusal says why a request is not answered; nil: it may be.
func refusal(r *http.Request) *admin.Error {
	asks := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case !asks && (r.Method != http.MethodPost || r.URL.Path != loginPath):
		return &admin.Error{Code: http.StatusMethodNotAllowed, What: r.Method + " " + r.URL.Path, Why: "these pages only show"}
	case !loopback(r.Host):
		return &admin.Error{Code: http.StatusForbidden, What: fmt.Sprintf("no answer for the name %q", r.Host), Why: "these pages answer for localhost and loopback addresses only", Try: "open them by http://127.0.0.1 and the port"}
	case foreign(r):
		return &admin.Error{Code: http.StatusForbidden, What: "no answer to a page of another origin"}
	}
	return nil
}

// loopback reports whether host, with or without a port, is a name that no other machine can have: a name
// of the DNS could lead here too, and its pages would then be of one origin with these.
func loopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && addr.IsLoopback()
}

// foreign reports whether a request was made by a page of another origin. A link from elsewhere is
// not: a browser sends no cookie with it.
func foreign(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && !strings.EqualFold(origin, "http://"+r.Host) {
		return true
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return site != "" && site != "same-origin" && site != "none" && r.Header.Get("Sec-Fetch-Mode") != "navigate"
}
