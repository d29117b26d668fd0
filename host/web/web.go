// SPDX-License-Identifier: Apache-2.0

/*
Package web serves the status pages: HTML without JavaScript, rendered for each request from the functions that serve
the admin socket, and charts of the host's own metrics.

	browser ─▶ refusal: Host, origin ─▶ overview, services, service ─▶ templates
	                                        └─ history ◀─ metrics, every 15 seconds

The pages are read-only: no request changes the host. They are served on a loopback address without authentication, so
every process on the node can read them, but other web sites cannot: a request for a host name other than localhost or a
loopback address is refused, which prevents DNS rebinding. Start reading at New.
*/
package web

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/phrase"
)

//go:embed templates static
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"ago":      phrase.Since,
	"at":       func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"count":    phrase.Count,
	"list":     phrase.List[string],
	"some":     phrase.Some[string],
	"memory":   func(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) },
	"ownerURL": ownerURL,
}).ParseFS(files, "templates/*.html"))

// ownerURL returns the path of the page of a port's Service. The port is named as in events:
// "shop/web:http/tcp4".
func ownerURL(port string) string {
	namespace, rest, _ := strings.Cut(port, "/")
	name, _, _ := strings.Cut(rest, "/")
	name, _, _ = strings.Cut(name, ":")
	return "/services/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// A Site serves the pages of one host. It is safe for concurrent use.
type Site struct {
	node    string
	backend admin.Backend
	history history
	reads   *rate.Limiter // limits Inspect, which costs the plugin time
	mux     *http.ServeMux
	now     func() time.Time
}

// New returns the pages for the host on node, with data from b and the given metrics.
func New(node string, b admin.Backend, metrics prometheus.Gatherer) *Site {
	s := &Site{node: node, backend: b, history: history{metrics: metrics}, reads: rate.NewLimiter(2, 10), mux: http.NewServeMux(), now: time.Now}
	s.mux.Handle("GET /static/", http.FileServerFS(files))
	for pattern, view := range map[string]func(*http.Request) (page, error){
		"GET /{$}":                         s.overview,
		"GET /services":                    s.services,
		"GET /services/{namespace}/{name}": s.service,
		"GET /": func(r *http.Request) (page, error) {
			return page{}, &admin.Error{Code: http.StatusNotFound, What: "no page " + r.URL.Path}
		},
	} {
		s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			p, err := view(r)
			if err != nil {
				s.fail(w, r, err)
				return
			}
			s.show(w, r, http.StatusOK, p)
		})
	}
	return s
}

// ServeHTTP serves a page. Its headers forbid the browser to load content from other sites, to
// cache the page, and to show it in a frame.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; img-src 'self'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	if err := refusal(r); err != nil {
		s.fail(w, r, err)
		return
	}
	s.mux.ServeHTTP(w, r)
}

// refusal returns an error if a request must be refused, or nil.
func refusal(r *http.Request) error {
	site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
	switch {
	case !isLoopback(r.Host):
		return &admin.Error{Code: http.StatusForbidden, What: fmt.Sprintf("no answer for the name %q", r.Host), Why: "these pages answer for localhost and loopback addresses only", Try: "open http://127.0.0.1:PORT"}
	case origin != "" && !strings.EqualFold(origin, "http://"+r.Host),
		site != "" && site != "same-origin" && site != "none" && r.Header.Get("Sec-Fetch-Mode") != "navigate":
		return &admin.Error{Code: http.StatusForbidden, What: "no answer to a page of another origin"}
	}
	return nil
}

// isLoopback reports whether host, with or without a port, is localhost or a loopback address.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	addr, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && addr.IsLoopback()
}

// A page is a template and its data.
type page struct {
	Template, Title, Here string // Here is the path of the menu entry
	Main                  any

	Node    string
	Now     time.Time
	Reloads bool   // the browser reloads the page periodically
	Reload  string // the query that toggles Reloads
}

func (s *Site) show(w http.ResponseWriter, r *http.Request, code int, p page) {
	q := r.URL.Query()
	p.Node, p.Now, p.Reloads = s.node, s.now(), q.Has("reload")
	if q.Set("reload", ""); p.Reloads {
		q.Del("reload")
	}
	p.Reload = "?" + q.Encode()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_ = templates.ExecuteTemplate(w, p.Template, p) // an error means that the client has gone
}

func (s *Site) fail(w http.ResponseWriter, r *http.Request, err error) {
	var e *admin.Error
	if !errors.As(err, &e) {
		e = &admin.Error{What: err.Error()}
	}
	s.show(w, r, cmp.Or(e.Code, http.StatusInternalServerError), page{Template: "error.html", Title: "Error", Main: e})
}

// An overview is the state of the host on one page.
type overview struct {
	admin.Status
	Plugins []admin.Plugin
	Charts  []chart
	Events  []admin.Event // the latest first
}

func (s *Site) overview(*http.Request) (page, error) {
	o := overview{Status: s.backend.Status(), Plugins: s.backend.Plugins(), Charts: s.history.charts(), Events: s.backend.Events()}
	slices.Reverse(o.Events)
	o.Events = o.Events[:min(len(o.Events), 20)]
	return page{Template: "overview.html", Title: "Overview", Here: "/", Main: o}, nil
}

// mostRows limits the rows of the list of Services: a browser takes seconds to lay out thousands.
const mostRows = 200

// A serviceList is the first ports that match a query.
type serviceList struct {
	Text     string
	Problems bool
	Rows     []row
	Of       int // the number of ports that match
}

// A row is one port of a Service, or a Service without ports.
type row struct {
	Title, Problem string
	*admin.Port
}

func (s *Site) services(r *http.Request) (page, error) {
	q := r.URL.Query()
	list := serviceList{Text: strings.TrimSpace(q.Get("text")), Problems: q.Has("problems")}
	services, _ := s.backend.Services()
	for _, svc := range services {
		for i := range svc.Ports {
			p := &svc.Ports[i]
			if (!list.Problems || p.State != "served") && (list.Text == "" || svc.Mentions(*p, list.Text)) {
				list.Rows = append(list.Rows, row{svc.PortName(*p), "", p})
			}
		}
		if name := svc.Namespace + "/" + svc.Name; len(svc.Ports) == 0 && strings.Contains(name, list.Text) {
			list.Rows = append(list.Rows, row{name, cmp.Or(strings.Join(svc.Problems, "; "), "it has no port that is served"), nil})
		}
	}
	list.Of = len(list.Rows)
	list.Rows = list.Rows[:min(mostRows, list.Of)]
	return page{Template: "services.html", Title: "Services", Here: "/services", Main: list}, nil
}

// A serviceView is one Service.
type serviceView struct{ admin.ServiceDetail }

func (s *Site) service(r *http.Request) (page, error) {
	if !s.reads.Allow() {
		return page{}, &admin.Error{Code: http.StatusTooManyRequests, What: "too many requests at once", Why: "each makes the dataplane read what it serves", Try: "again in a second"}
	}
	detail, err := s.backend.Service(r.Context(), r.PathValue("namespace"), r.PathValue("name"))
	return page{Template: "service.html", Title: detail.Namespace + "/" + detail.Name, Here: "/services", Main: serviceView{detail}}, err
}
