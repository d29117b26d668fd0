// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func backend() Backend {
	return Backend{
		Status: func() Status { return Status{Mode: "userspace", Healthy: true} },
		Services: func() ([]Service, string) {
			return []Service{{Namespace: "shop", Name: "web", Ports: []Port{{Network: "tcp4"}}}}, ""
		},
		Service: func(_ context.Context, namespace, name string) (ServiceDetail, error) {
			return ServiceDetail{Service: Service{Namespace: namespace, Name: name, Ports: []Port{{Network: "tcp4"}}}}, nil
		},
		Explain: func(_ context.Context, q Question) (Explanation, error) {
			return Explanation{Question: q, Verdict: "forward"}, nil
		},
		Watch: func(ctx context.Context, q *Question, tell func(Watched) error) error {
			if q == nil {
				return tell(Watched{Verdict: "drop"})
			}
			if q.Protocol == "sctp" {
				return &Error{Code: http.StatusConflict, What: "mode userspace cannot watch packets"}
			}
			if err := tell(Watched{Verdict: "forward", To: q.To.String()}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
		Plugins: func() []Plugin { return []Plugin{{Name: "userspace", State: "serving", PID: 7}} },
		Config:  func() (Config, error) { return Config{Settings: json.RawMessage(`{"mode":"userspace"}`)}, nil },
		Events:  func() []Event { return []Event{{Reason: "PluginCrashed", Count: 2}} },
		Restart: func(name string) (string, error) {
			if name != "userspace" {
				return "", UnknownPlugin(name)
			}
			return "plugin userspace restarts", nil
		},
		Mode: func() Mode { return Mode{Mode: "userspace", Swap: &Swap{To: "iptables", Stage: "draining"}} },
		Swap: func(a SwapAsk) (string, error) {
			if !a.Force {
				return "", &Error{Code: http.StatusConflict, What: "swap to " + a.To, Why: "another one is under way"}
			}
			return "the swap to " + a.To + " begins", nil
		},
		Reset: func() (string, error) { return "undone", nil },
		Logs: func(ctx context.Context, name string, follow bool, line func(LogLine) error) error {
			if name != "userspace" {
				return UnknownPlugin(name)
			}
			if err := line(LogLine{Message: "first"}); err != nil || !follow {
				return err
			}
			if err := line(LogLine{Message: "second"}); err != nil {
				return err
			}
			<-ctx.Done()
			return nil
		},
	}
}

func meta(kind string) Meta { return Meta{APIVersion, kind} }

// serve runs a server until the test ends, and returns its socket.
func serve(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "adm")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "run", "p.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, l, backend()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is left: %v", err)
		}
		os.RemoveAll(dir)
	})
	return path
}

func TestRequests(t *testing.T) {
	c := NewClient(serve(t))
	ctx := t.Context()
	if s, err := c.Status(ctx); err != nil || s.Mode != "userspace" || s.Meta != meta("Status") {
		t.Errorf("status %+v, error %v", s, err)
	}
	if l, err := c.Services(ctx); err != nil || len(l.Items) != 1 || l.Meta != meta("ServiceList") {
		t.Errorf("services %+v, error %v", l, err)
	}
	if s, err := c.Service(ctx, "shop", "w/b"); err != nil || s.Namespace != "shop" || s.Name != "w/b" || s.Meta != meta("ServiceDetail") {
		t.Errorf("service %+v, error %v", s, err)
	}
	if l, err := c.Plugins(ctx); err != nil || len(l.Items) != 1 || l.Meta != meta("PluginList") {
		t.Errorf("plugins %+v, error %v", l, err)
	}
	if conf, err := c.Config(ctx); err != nil || string(conf.Settings) != `{"mode":"userspace"}` {
		t.Errorf("config %s, error %v", conf.Settings, err)
	}
	if l, err := c.Events(ctx); err != nil || len(l.Items) != 1 || l.Items[0].Count != 2 {
		t.Errorf("events %+v, error %v", l, err)
	}
	if d, err := c.Restart(ctx, "userspace"); err != nil || !strings.Contains(d.Message, "userspace") {
		t.Errorf("restart %+v, error %v", d, err)
	}
}

func TestErrors(t *testing.T) {
	c := NewClient(serve(t))
	want := "no plugin acme: there is no binary of that name in pluginDirs; try: pointsman plugin list"
	_, restart := c.Restart(t.Context(), "acme")
	logs := c.Logs(t.Context(), "acme", false, func(LogLine) {})
	for _, err := range []error{restart, logs} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

func TestLogs(t *testing.T) {
	c := NewClient(serve(t))
	var got []string
	if err := c.Logs(t.Context(), "userspace", false, func(l LogLine) { got = append(got, l.Message) }); err != nil || len(got) != 1 {
		t.Errorf("lines %q, error %v", got, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got = nil
	err := c.Logs(ctx, "userspace", true, func(l LogLine) {
		if got = append(got, l.Message); len(got) == 2 {
			cancel()
		}
	})
	if err != nil || strings.Join(got, " ") != "first second" {
		t.Errorf("followed lines %q, error %v", got, err)
	}
}

func TestWatch(t *testing.T) {
	c := NewClient(serve(t))
	for _, tt := range []struct{ from, to, told, err string }{
		{"node", "10.96.0.10:53/udp", "forward 10.96.0.10:53", ""},
		{"", "", "drop ", "the host ended the watch early"},
		{"node", "10.96.0.10:53/sctp", "", "mode userspace cannot watch packets"},
		{"web", "10.96.0.10:53", "", "is not a caller"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		told := ""
		err := c.Watch(ctx, tt.from, tt.to, func(w Watched) {
			if told = w.Verdict + " " + w.To; tt.err == "" {
				cancel()
			}
		})
		if told != tt.told || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("from %q to %q: told %q, %v", tt.from, tt.to, told, err)
		}
		cancel()
	}
}

func TestGetDoesNotAct(t *testing.T) {
	path := serve(t)
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}}
	r, err := c.Get("http://pointsman/v1/plugins/userspace/restart")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	_, _ = io.Copy(io.Discard, r.Body)
	if r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET of a restart: %s", r.Status)
	}
}

func TestSocketMode(t *testing.T) {
	info, err := os.Stat(serve(t))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
}

func TestSocketInUse(t *testing.T) {
	if _, err := Listen(serve(t)); err == nil || !strings.Contains(err.Error(), "another host answers") {
		t.Errorf("error %v", err)
	}
}

// TestStaleSocketIsReplaced: a killed host leaves its socket, in place or before it was renamed.
func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "p.sock")
	for _, behind := range []string{path, path + ".new"} {
		left, err := net.Listen("unix", behind)
		if err != nil {
			t.Fatal(err)
		}
		left.(*net.UnixListener).SetUnlinkOnClose(false)
		left.Close()
		l, err := Listen(path)
		if err != nil {
			t.Fatalf("%s was left: %v", behind, err)
		}
		l.Close()
	}
}

// TestLongestPath listens on the longest path that the config allows.
func TestLongestPath(t *testing.T) {
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, strings.Repeat("x", 103-len(dir)-1))
	l, err := Listen(path)
	if err != nil {
		t.Fatalf("%d bytes: %v", len(path), err)
	}
	l.Close()
}

func TestFileIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "precious")
	for _, file := range []string{path, path + ".new"} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Listen(path); err == nil || !strings.Contains(err.Error(), file+" exists and is not a socket") {
			t.Errorf("%s: error %v", file, err)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUnreachable(t *testing.T) {
	_, err := NewClient(filepath.Join(t.TempDir(), "p.sock")).Status(t.Context())
	if !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "pointsman run") {
		t.Errorf("error %v", err)
	}
}

// TestModes sends every request about the mode.
func TestModes(t *testing.T) {
	c := NewClient(serve(t))
	m, err := c.Mode(t.Context())
	if err != nil || m.Kind != "Mode" || m.Mode != "userspace" || !m.Swap.Moved() {
		t.Errorf("mode %+v, %v", m, err)
	}
	if _, err := c.SwapMode(t.Context(), SwapAsk{To: "iptables"}); err == nil || !strings.Contains(err.Error(), "under way") {
		t.Errorf("a second swap: %v", err)
	}
	if d, err := c.SwapMode(t.Context(), SwapAsk{To: "iptables", Force: true}); err != nil || !strings.Contains(d.Message, "iptables") {
		t.Errorf("swap %+v, %v", d, err)
	}
	if d, err := c.ResetMode(t.Context()); err != nil || d.Message != "undone" {
		t.Errorf("reset %+v, %v", d, err)
	}
}

// A deadlined response counts the writes that have no deadline.
type deadlined struct {
	httptest.ResponseRecorder
	set               bool
	writes, limitless int
}

func (d *deadlined) SetWriteDeadline(at time.Time) error {
	d.set = time.Until(at) > 0 && time.Until(at) <= writeLimit
	return nil
}

func (d *deadlined) Write(text []byte) (int, error) {
	d.writes++
	if !d.set {
		d.limitless++
	}
	d.set = false
	return d.ResponseRecorder.Write(text)
}

// TestDeadlines: the host has limited time to compute a response, and the client to read each part of it.
func TestDeadlines(t *testing.T) {
	limited := 0
	count := func(ctx context.Context) {
		if at, has := ctx.Deadline(); has && time.Until(at) <= requestLimit {
			limited++
		}
	}
	b := backend()
	b.Service = func(ctx context.Context, _, _ string) (ServiceDetail, error) { count(ctx); return ServiceDetail{}, nil }
	b.Diff = func(ctx context.Context) (Diff, error) { count(ctx); return Diff{}, nil }
	b.Logs = func(_ context.Context, _ string, _ bool, line func(LogLine) error) error {
		return errors.Join(line(LogLine{}), line(LogLine{}))
	}
	for path, writes := range map[string]int{"services": 1, "services/a/b": 1, "diff": 1, "plugins/x/logs": 2} {
		d := &deadlined{ResponseRecorder: *httptest.NewRecorder()}
		handler(b).ServeHTTP(d, httptest.NewRequest(http.MethodGet, "http://pointsman/v1/"+path, nil))
		if d.Code != http.StatusOK || d.writes < writes || d.limitless > 0 {
			t.Errorf("%s: %d, in %d writes, %d of them without a deadline", path, d.Code, d.writes, d.limitless)
		}
	}
	if limited != 2 {
		t.Errorf("%d answers of 2 had a deadline", limited)
	}
}
