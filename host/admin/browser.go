// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// beside answers below /v1/ by api, and all else by web, if there is that.
func beside(api, web http.Handler) http.Handler {
	if web == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/v1/") {
			api.ServeHTTP(w, r)
			return
		}
		web.ServeHTTP(w, r)
	})
}

// noBrowserActs refuses what a browser sends and does not only ask: an admin socket may be forwarded
// to a port (ssh -L), and then a form of any web site can be sent there.
func noBrowserActs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asks := r.Method == http.MethodGet || r.Method == http.MethodHead
		browser := r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != ""
		if browser && !asks {
			fail(w, &Error{Code: http.StatusForbidden, What: r.Method + " " + r.URL.Path, Why: "a browser may ask, and not act", Try: "pointsman"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ownName refuses requests for a name of the DNS: such a name can lead a browser to a forwarded
// port, and the pages of its owner would be of one origin with what is answered here.
func ownName(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !local(r.Host) {
			fail(w, &Error{Code: http.StatusForbidden, What: "no answer for the name " + r.Host, Why: "the admin socket answers for localhost, addresses and names without a dot"})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// local reports whether host, with or without a port, is nothing that the DNS has an owner for.
func local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return !strings.Contains(host, ".")
}
