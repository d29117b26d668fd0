// SPDX-License-Identifier: Apache-2.0

/*
Package web shows a host in browsers: pages of HTML that are
put together when they are asked for, from the same functions that answer the admin socket.

	browser ─▶ Loopback: Host, Origin, method, token ─┐
	                                                  ├─▶ views ─▶ templates ─▶ HTML
	browser ─▶ admin socket, which has its own guard ─┘     └─ admin.Backend

The pages only show. The one form that is sent by POST is the one for the token, and it changes
nothing in the host. Everything that a page consists of is in the binary: no other server is asked
for anything, and without JavaScript all of it can be read.

On a port of the loopback interface every process of the node can connect, and so can a script of
any web site that a browser on the node has open. Therefore [Site.Loopback] asks for a token that is
in a file of the host's, and refuses requests that were meant for another name or come from another
origin.
*/
package web

import (
	"bufio"
	"context"
	"embed"
	"errors"
	"html/template"
	"net/http"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

//go:embed templates/*.html
var templateFiles embed.FS

//go:embed static
var staticFiles embed.FS

var templates = template.Must(template.New("").Funcs(functions).ParseFS(templateFiles, "templates/*.html"))

// A Site is the pages of one host. It is safe for concurrent use.
type Site struct {
	node    string
	backend admin.Backend
	live    *live
	reads   *rate // of what the dataplane serves: each is work for the plugin
	now     func() time.Time
}

// New returns the pages of the host on node, with what b answers.
func New(node string, b admin.Backend) *Site {
	look := func() uint64 { return version(b.Status(), b.Events()) }
	return &Site{node: node, backend: b, live: newLive(look), reads: newRate(2, 10, time.Now), now: time.Now}
}

// answerTimeout is how long it may take to find out what a page shows.
const answerTimeout = 20 * time.Second

// partSize is how many bytes of a page are written at once: what is held of it.
const partSize = 16 << 10

// Handler returns the pages for callers that may ask this host anything, such as those of its
// sockets.
func (s *Site) Handler() http.Handler { return withHeaders(s.routes()) }

// routes answers with the pages, each within its time, and with what changes while a page is open.
func (s *Site) routes() http.Handler {
	mux := http.NewServeMux()
	answer := func(show func(http.ResponseWriter, *http.Request) error) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if err := show(w, r); err != nil {
				s.fail(w, err)
			}
		})
	}
	handle := func(pattern string, show func(http.ResponseWriter, *http.Request) error) {
		mux.Handle(pattern, limited(answer(show)))
	}
	mux.Handle("GET /changes", answer(s.changes))
	handle("GET /{$}", s.overview)
	handle("GET /services", s.services)
	handle("GET /services/{namespace}/{name}", s.service)
	handle("GET /explain", s.explain)
	handle("GET /plugins", s.plugins)
	handle("GET /plugins/{name}/logs", s.logs)
	handle("GET /events", s.events)
	handle("GET /", func(_ http.ResponseWriter, r *http.Request) error {
		return &admin.Error{Code: http.StatusNotFound, What: "no page " + r.URL.Path}
	})
	mux.Handle("GET /static/", limited(static()))
	return mux
}

// static answers with what the pages consist of besides HTML. It is the same for everybody.
func static() http.Handler { return http.FileServerFS(staticFiles) }

// limited bounds the time that an answer takes to be put together, and that each part of it takes to be read.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w = admin.Limited(w)
		out := http.NewResponseController(w)
		ctx, cancel := context.WithTimeout(r.Context(), answerTimeout)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
		_ = out.Flush()
		_ = out.SetWriteDeadline(time.Time{}) // the connection may be used again, by what has no such limit
	})
}

// A frame is what every page has around its own content.
type frame struct {
	Title string
	Live  bool   // it is kept current where JavaScript runs
	Here  string // the entry of the menu; empty: none
	Node  string
	Now   time.Time
	Main  any // of the page itself
}

// show answers with a page, part by part as it is put together: that of ten thousand Services is never held
// whole. An error of writing ends it, and is the caller's to notice, by a page that ends in its middle.
func (s *Site) show(w http.ResponseWriter, code int, name string, f frame) error {
	f.Node, f.Now = s.node, s.now()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	out := bufio.NewWriterSize(w, partSize)
	_ = templates.ExecuteTemplate(out, name+".html", f)
	_ = out.Flush()
	return nil
}

// fail answers with what went wrong.
func (s *Site) fail(w http.ResponseWriter, err error) {
	var e *admin.Error
	if !errors.As(err, &e) {
		e = &admin.Error{What: err.Error()}
	}
	code := e.Code
	if code == 0 {
		code = http.StatusInternalServerError
	}
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	_ = s.show(w, code, "error", frame{Title: "Error", Main: e})
}
