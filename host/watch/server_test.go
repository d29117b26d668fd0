// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// An apiServer has the objects of a small cluster at one revision. A watch sends no changes, and ends with
// restore.
type apiServer struct {
	mu       sync.Mutex
	revision int
	slice    *discoveryv1.EndpointSlice
	ended    chan struct{}
}

func newAPIServer() *apiServer {
	return &apiServer{revision: 1000, slice: kubeSlice("10.1.0.1"), ended: make(chan struct{})}
}

// restore replaces the state and the revision, and ends all watches.
func (s *apiServer) restore(revision int, slice *discoveryv1.EndpointSlice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.ended)
	s.revision, s.slice, s.ended = revision, slice, make(chan struct{})
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	revision, slice, ended := strconv.Itoa(s.revision), s.slice.DeepCopy(), s.ended
	s.mu.Unlock()
	version, kind, items := "v1", "Service", []runtime.Object{kubeService()}
	switch {
	case strings.HasSuffix(r.URL.Path, "/nodes"):
		kind, items = "Node", []runtime.Object{kubeNode()}
	case strings.HasSuffix(r.URL.Path, "/servicecidrs"):
		version, kind, items = "networking.k8s.io/v1", "ServiceCIDR", nil
	case strings.HasSuffix(r.URL.Path, "/endpointslices"):
		version, kind, items = "discovery.k8s.io/v1", "EndpointSlice", []runtime.Object{slice}
	}
	w.Header().Set("Content-Type", "application/json")
	send := func(o any) { _ = json.NewEncoder(w).Encode(o) }
	if !r.URL.Query().Has("watch") {
		send(map[string]any{"kind": kind + "List", "apiVersion": version, "metadata": map[string]any{"resourceVersion": revision}, "items": items})
		return
	}
	if r.URL.Query().Has("sendInitialEvents") {
		of := metav1.TypeMeta{Kind: kind, APIVersion: version}
		for _, o := range items {
			switch o := o.(type) {
			case *corev1.Service:
				o.TypeMeta = of
			case *corev1.Node:
				o.TypeMeta = of
			case *discoveryv1.EndpointSlice:
				o.TypeMeta = of
			}
			send(map[string]any{"type": "ADDED", "object": o})
		}
		end := metav1.ObjectMeta{ResourceVersion: revision, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
		send(map[string]any{"type": "BOOKMARK", "object": map[string]any{"kind": kind, "apiVersion": version, "metadata": end}})
	}
	_ = http.NewResponseController(w).Flush()
	select {
	case <-ended:
	case <-r.Context().Done():
	}
}

// TestRestoredFromBackup checks that the state of a server is read again when its revision is lower, as after etcd
// was restored, with lists and with streams.
func TestRestoredFromBackup(t *testing.T) {
	for _, lists := range []bool{true, false} {
		server := newAPIServer()
		client, err := newClient(serve(t, server.ServeHTTP))
		if err != nil {
			t.Fatal(err)
		}
		if lists {
			client.Slices = inLists{client.Slices}
		}
		t.Cleanup(func() { server.restore(1, kubeSlice()) }) // so that the server can end
		h := newKubeOf(t, client)
		if u := h.next(); !slices.Equal(endpoints(u), []string{"10.1.0.1:8080"}) {
			t.Fatalf("the first update is %+v", u)
		}
		server.restore(500, kubeSlice("10.1.0.9"))
		if u := h.next(); u.Full || !slices.Equal(endpoints(u), []string{"10.1.0.9:8080"}) {
			t.Fatalf("after the revision went back: %+v", u)
		}
		if got := h.reasons(); len(got) > 0 {
			t.Errorf("notices %v", got)
		}
	}
}

// TestThrottledDespiteRevision checks that an answer to checkRevision alone does not count as success.
func TestThrottledDespiteRevision(t *testing.T) {
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("limit") != "1" {
			w.WriteHeader(http.StatusGatewayTimeout)
			_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504}`))
			return
		}
		_, _ = w.Write([]byte(`{"kind":"ServiceList","apiVersion":"v1","metadata":{"resourceVersion":"9"}}`))
	})
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observe(next, func(Request) {}) })
	client, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	l := &link{kind: "Services"}
	lists := lister(client.Services, metav1.ListOptions{}, l)
	var since []time.Time
	for range 2 {
		if _, err := lists.ListWithContextFunc(t.Context(), metav1.ListOptions{ResourceVersion: "7"}); err == nil {
			t.Error("list: no error")
		}
		since = append(since, l.failingSince)
	}
	if since[0].IsZero() || since[0] != since[1] {
		t.Errorf("fails since %v", since)
	}
}

// TestServerStops stops a server whose connections stay open. The host reports it when the HTTP/2 connection is
// lost, without waiting for another request.
func TestServerStops(t *testing.T) {
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "1")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
	server := newAPIServer()
	behind := httptest.NewUnstartedServer(server)
	behind.EnableHTTP2 = true
	behind.StartTLS()
	t.Cleanup(behind.Close)
	t.Cleanup(behind.CloseClientConnections)
	front, stop := stoppable(t, behind.Listener.Addr().String())
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, kubeconfig("https://"+front, "t"))
	client, err := Connect(Connection{Kubeconfig: file, QPS: 50, Burst: 100, Observe: func(Request) {}})
	if err != nil {
		t.Fatal(err)
	}
	h := newKubeOf(t, client)
	h.next()
	stop()
	h.until("a fault", func() bool { return h.source.Fault() != "" })
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.notices[0]; n.Reason != SourceUnreachable || !strings.Contains(n.Message, "client connection lost; what is served stays as it is; last heard ") {
		t.Errorf("reported %+v", n)
	}
}

// stoppable forwards connections from front to an address until stop. After that it only accepts them.
func stoppable(t *testing.T, to string) (front string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stopped, halt := context.WithCancel(context.Background())
	var running sync.WaitGroup
	t.Cleanup(func() { halt(); _ = l.Close(); running.Wait() })
	running.Go(func() { // until l is closed
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = in.Close() })
			if stopped.Err() != nil {
				continue
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				t.Error(err)
				return
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				running.Go(func() { // until one side is closed, or stop
					context.AfterFunc(stopped, func() { _ = out.Close() })
					_, _ = io.Copy(way[0], way[1])
				})
			}
		}
	})
	return l.Addr().String(), halt
}

// TestDialsInTurn checks that connections to a name with two addresses alternate.
func TestDialsInTurn(t *testing.T) {
	first, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Close() }()
	_, port, _ := net.SplitHostPort(first.Addr().String())
	second, err := net.Listen("tcp", "127.0.0.3:"+port)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	dial := dialInTurn(func(context.Context, string) ([]string, error) { return []string{"127.0.0.3", "127.0.0.2"}, nil })
	for _, want := range []net.Listener{first, second, first} {
		conn, err := dial(t.Context(), "tcp", net.JoinHostPort("api.example", port))
		if err != nil {
			t.Fatal(err)
		}
		if got := conn.RemoteAddr().String(); got != want.Addr().String() {
			t.Errorf("dialed %s, want %s", got, want.Addr())
		}
		_ = conn.Close()
	}
}
