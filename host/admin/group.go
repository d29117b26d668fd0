// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
)

// GroupSocket returns where the members of adminGroup reach the host whose own socket is at path:
// in a folder that they alone may enter.
func GroupSocket(path string) string {
	return filepath.Join(filepath.Dir(path), "group", filepath.Base(path))
}

// ServeGroup answers on l as Serve does, and refuses all that is no question.
func ServeGroup(ctx context.Context, l net.Listener, b Backend) error {
	return answer(ctx, l, asksOnly(handler(b)), b.Log)
}

// asksOnly passes on what only asks.
func asksOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet || r.Method == http.MethodHead {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, &Error{Code: http.StatusMethodNotAllowed, What: r.Method + " " + r.URL.Path, Why: "members of adminGroup may ask, and not act", Try: "sudo pointsman"})
	})
}
