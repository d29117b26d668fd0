// SPDX-License-Identifier: Apache-2.0

package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

const (
	loginPath = "/login"

	// sessionTime is how long a browser need not be given the token again.
	sessionTime = 12 * time.Hour

	// mostForm is how large a form with a token may be, in bytes.
	mostForm = 4 << 10
)

// A login asks for the token once, and knows a browser by a cookie from then on. It is safe for
// concurrent use.
type login struct {
	site     *Site
	file     tokenFile
	attempts *rates

	mu    sync.Mutex // guards what follows
	token string     // empty: it could not be loaded yet
}

// Loopback returns the pages for a port of the loopback interface, for browsers that were given the
// token. That is in a file at path, which the group of that id may read; negative: there is none. The
// error is one about the file: it is then tried again with each request, and no page is shown before
// there is a token.
func (s *Site) Loopback(path string, gid int) (http.Handler, error) {
	l := &login{site: s, file: tokenFile{path, gid}, attempts: newRates(1, 10, time.Now)}
	_, err := l.known()
	mux := http.NewServeMux()
	mux.Handle("GET "+loginPath, limited(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { l.ask(w, http.StatusOK, "") })))
	mux.Handle("POST "+loginPath, limited(http.HandlerFunc(l.enter)))
	mux.Handle("GET /static/", limited(static()))
	mux.Handle("GET /", l.only(s.routes()))
	return withHeaders(s.guarded(mux)), err
}

// known returns the token.
func (l *login) known() (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var err error
	if l.token == "" {
		l.token, err = l.file.load()
	}
	return l.token, err
}

// only passes on what comes from a browser that was given the token.
func (l *login) only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := l.known()
		if err != nil {
			l.site.fail(w, unready(err))
			return
		}
		cookie, err := r.Cookie(cookieName(token))
		if err != nil || !valid(token, cookie.Value, l.site.now()) {
			http.Redirect(w, r, loginPath, http.StatusSeeOther)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func unready(err error) error {
	return &admin.Error{Code: http.StatusServiceUnavailable, What: "there is no token yet", Why: err.Error(), Try: "pointsman status"}
}

// ask answers with the form for the token.
func (l *login) ask(w http.ResponseWriter, code int, why string) {
	_ = l.site.show(w, code, "login", frame{Title: "Token", Main: struct{ File, Why string }{l.file.path, why}})
}

// enter takes the form for the token.
func (l *login) enter(w http.ResponseWriter, r *http.Request) {
	if !l.attempts.allow(r.RemoteAddr) {
		w.Header().Set("Retry-After", "1")
		l.ask(w, http.StatusTooManyRequests, "too many attempts: wait some seconds")
		return
	}
	token, err := l.known()
	if err != nil {
		l.site.fail(w, unready(err))
		return
	}
	r.Body = http.MaxBytesReader(w, r.Body, mostForm)
	given := strings.TrimSpace(r.PostFormValue("token"))
	if subtle.ConstantTimeCompare([]byte(given), []byte(token)) != 1 {
		l.ask(w, http.StatusForbidden, "that is not the token")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName(token), Value: session(token, l.site.now().Add(sessionTime)), Path: "/",
		MaxAge: int(sessionTime / time.Second), HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// cookieName is another one for each token: by ports forwarded from several nodes a browser sees
// them all at localhost, and a cookie belongs to a name, not to a port.
func cookieName(token string) string {
	sum := sha256.Sum256([]byte("name " + token))
	return "pointsman-" + hex.EncodeToString(sum[:4])
}

// session returns what a cookie says that is valid until then. It shows that its sender was given
// the token, and not the token itself.
func session(token string, until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	mac := hmac.New(sha256.New, []byte(token))
	mac.Write([]byte("session until " + end))
	return end + "." + hex.EncodeToString(mac.Sum(nil))
}

// valid reports whether a cookie is one that session has returned, and is valid at now.
func valid(token, cookie string, now time.Time) bool {
	text, _, _ := strings.Cut(cookie, ".")
	end, err := strconv.ParseInt(text, 10, 64)
	until := time.Unix(end, 0)
	return err == nil && now.Before(until) && hmac.Equal([]byte(cookie), []byte(session(token, until)))
}
