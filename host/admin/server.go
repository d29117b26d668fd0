// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"reflect"
	"strconv"
	"time"

	"golang.org/x/net/netutil"
)

// A Backend has the functions that a Server calls. They must be safe for concurrent use.
type Backend struct {
	Status   func() Status
	Services func() (list []Service, unknown string) // unknown: why the list is incomplete
	Service  func(ctx context.Context, namespace, name string) (ServiceDetail, error)
	Explain  func(context.Context, Question) (Explanation, error)
	Watch    func(context.Context, *Question, func(Watched) error) error // until ctx ends; nil: all that are dropped or rejected
	Plugins  func() []Plugin
	Config   func() (Config, error)
	Events   func() []Event

	// Logs calls line for each stored line of the plugin's log and, with follow, for each new
	// line until ctx ends.
	Logs func(ctx context.Context, name string, follow bool, line func(LogLine) error) error

	Restart func(name string) (string, error) // returns a message about what is done

	Mode    func() Mode
	Diff    func(context.Context) (Diff, error)
	Swap    func(SwapAsk) (string, error) // returns a message, like the next
	Reset   func() (string, error)
	Metrics http.Handler // in the Prometheus text format
	Log     *log.Logger  // for errors of net/http; nil discards them
}

const (
	// writeLimit limits the time until a client has read a response, or a line of a stream. The
	// connection to a client that is stuck is closed.
	writeLimit = 10 * time.Second

	// requestLimit limits a request: the time to compute the response, and the time for a Client to
	// read all of it.
	requestLimit = 30 * time.Second
)

// mostConns limits the number of connections. Further ones wait in the kernel.
const mostConns = 32

// Serve serves on l until ctx ends. It returns when all responses are complete or cut off, at
// most a second later.
func Serve(ctx context.Context, l net.Listener, b Backend) error {
	server := &http.Server{
		Handler:           handler(b),
		ReadHeaderTimeout: 2 * time.Second, // pointsman sends its request at once
		ReadTimeout:       10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          cmp.Or(b.Log, log.New(io.Discard, "", 0)),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	})
	err := server.Serve(netutil.LimitListener(l, mostConns))
	if stop() {
		return fmt.Errorf("serve the admin socket: %w", err)
	}
	<-stopped
	return nil
}

// handler returns the handler for b.
func handler(b Backend) http.Handler {
	mux := http.NewServeMux()
	route(mux, "GET /v1/status", func(*http.Request) (Status, error) { return b.Status(), nil })
	route(mux, "GET /v1/services", func(*http.Request) (ServiceList, error) {
		list, unknown := b.Services()
		return ServiceList{Items: list, Unknown: unknown}, nil
	})
	route(mux, "GET /v1/services/{namespace}/{name}", func(r *http.Request) (ServiceDetail, error) {
		return b.Service(r.Context(), r.PathValue("namespace"), r.PathValue("name"))
	})
	route(mux, "GET /v1/explain", func(r *http.Request) (Explanation, error) {
		q, err := ParseQuestion(r.URL.Query().Get("from"), r.URL.Query().Get("to"))
		if err != nil {
			return Explanation{}, err
		}
		q.Try, _ = strconv.ParseBool(r.URL.Query().Get("try"))
		return b.Explain(r.Context(), q)
	})
	route(mux, "GET /v1/plugins", func(*http.Request) (PluginList, error) { return PluginList{Items: b.Plugins()}, nil })
	route(mux, "GET /v1/config", func(*http.Request) (Config, error) { return b.Config() })
	route(mux, "GET /v1/events", func(*http.Request) (EventList, error) { return EventList{Items: b.Events()}, nil })
	route(mux, "GET /v1/mode", func(*http.Request) (Mode, error) { return b.Mode(), nil })
	route(mux, "GET /v1/diff", func(r *http.Request) (Diff, error) { return b.Diff(r.Context()) })
	route(mux, "POST /v1/plugins/{name}/restart", func(r *http.Request) (Done, error) { return done(b.Restart(r.PathValue("name"))) })
	route(mux, "POST /v1/mode/swap", func(r *http.Request) (Done, error) {
		q := r.URL.Query()
		a := SwapAsk{To: q.Get("to")}
		a.Force, _ = strconv.ParseBool(q.Get("force"))
		a.DryRun, _ = strconv.ParseBool(q.Get("dryRun"))
		return done(b.Swap(a))
	})
	route(mux, "POST /v1/mode/reset", func(*http.Request) (Done, error) { return done(b.Reset()) })
	mux.HandleFunc("GET /v1/plugins/{name}/logs", func(w http.ResponseWriter, r *http.Request) {
		stream(w, func(line func(LogLine) error) error {
			return b.Logs(r.Context(), r.PathValue("name"), r.URL.Query().Has("follow"), line)
		})
	})
	mux.HandleFunc("POST /v1/watch", func(w http.ResponseWriter, r *http.Request) {
		stream(w, func(line func(Watched) error) error { return b.watch(r, line) })
	})
	mux.HandleFunc("GET /v1/metrics", func(w http.ResponseWriter, r *http.Request) {
		limitWrite(w)
		b.Metrics.ServeHTTP(w, r)
	})
	return mux
}

func done(message string, err error) (Done, error) { return Done{Message: message}, err }

// route registers a handler that sends the result of answer as JSON. The kind of the body is the name
// of its type. answer has requestLimit of time.
func route[T any, P interface {
	*T
	setMeta(kind string)
}](mux *http.ServeMux, pattern string, answer func(*http.Request) (T, error)) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestLimit)
		defer cancel()
		body, err := answer(r.WithContext(ctx))
		if err != nil {
			fail(w, err)
			return
		}
		P(&body).setMeta(reflect.TypeFor[T]().Name())
		write(w, http.StatusOK, body)
	})
}

// UnknownPlugin returns the error for a plugin that does not exist.
func UnknownPlugin(name string) *Error {
	return &Error{Code: http.StatusNotFound, What: "no plugin " + name, Why: "there is no binary of that name in pluginDirs", Try: "pointsman plugin list"}
}

func (b Backend) watch(r *http.Request, tell func(Watched) error) error {
	query := r.URL.Query()
	if !query.Has("to") {
		return b.Watch(r.Context(), nil, tell)
	}
	q, err := ParseQuestion(query.Get("from"), query.Get("to"))
	if err != nil {
		return err
	}
	return b.Watch(r.Context(), &q, tell)
}

// stream writes each value as a line of JSON as soon as run passes it.
func stream[T any](w http.ResponseWriter, run func(func(T) error) error) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	encoder := json.NewEncoder(w)
	started := false
	err := run(func(line T) error {
		started = true
		limitWrite(w)
		if err := encoder.Encode(line); err != nil {
			return err
		}
		return http.NewResponseController(w).Flush()
	})
	if err != nil && !started {
		fail(w, err)
	}
}

func fail(w http.ResponseWriter, err error) {
	var e *Error
	if !errors.As(err, &e) {
		e = &Error{What: err.Error()}
	}
	write(w, cmp.Or(e.Code, http.StatusInternalServerError), e)
}

func write(w http.ResponseWriter, code int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		code, data = http.StatusInternalServerError, []byte(`{"what":"encode the answer"}`)
	}
	limitWrite(w)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = w.Write(append(data, '\n')) // an error means that the client has gone
}

// limitWrite gives the client writeLimit to read what is written next.
func limitWrite(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeLimit)) // net/http supports it
}
