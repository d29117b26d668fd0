// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/pointsman/pointsman/host/track"
)

// TestLinkNotices checks the notices for a sequence of errors.
func TestLinkNotices(t *testing.T) {
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	refused := &url.Error{Op: "Get", URL: "https://10.0.0.1:6443/api/v1/services?limit=500", Err: &net.OpError{
		Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6443}, Err: errors.New("connection refused"),
	}}
	l := &link{kind: "Services"}
	for _, step := range []struct {
		after time.Duration
		err   error
		want  string // beginning of the notice; empty: none
	}{
		{0, nil, ""},
		{1 * time.Second, refused, "SourceUnreachable: list and watch Services: dial tcp 10.0.0.1:6443: connection refused; what is served"},
		{3 * time.Second, refused, ""},
		{30 * time.Second, apierrors.NewUnauthorized("who are you"), ""},
		{62 * time.Second, apierrors.NewUnauthorized("who are you"), "SourceForbidden: the API server rejects the credentials (who are you), so changes of Services are not seen; what is served stays as it is"},
		{63 * time.Second, nil, "SourceBack: the API server answers for Services again, after 1m2s"},
		{64 * time.Second, nil, ""},
		{65 * time.Second, apierrors.NewForbidden(schema.GroupResource{Resource: "services"}, "", nil), "SourceForbidden: reading Services is forbidden"},
		{66 * time.Second, nil, "SourceBack: the API server answers for Services again, after 1s"},
	} {
		n := l.update(step.err, start.Add(step.after))
		got := strings.TrimPrefix(n.Reason+": "+n.Message, ": ")
		if !strings.HasPrefix(got, step.want) || (step.want == "") != (got == "") {
			t.Errorf("%s: %v: reported %q, want %q", step.after, step.err, got, step.want)
		}
		if (step.err == nil) != (l.currentFault() == "") {
			t.Errorf("%s: the fault is %q after %v", step.after, l.currentFault(), step.err)
		}
	}
}

// TestThrottledForLong checks that errors of a cancelled request and routine errors are not reported, but that a server
// which has answered with routine errors for 30 s counts as unreachable until a request succeeds.
func TestThrottledForLong(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range []error{
		apierrors.NewTooManyRequests("later", 1), apierrors.NewResourceExpired("too old resource version"),
		apierrors.NewTimeoutError("Too large resource version: 9, current: 3", 1),
		&apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone, Code: http.StatusGone}}, // of older servers
	} {
		var notices []track.Notice
		l := &link{kind: "Services", report: func(n track.Notice) { notices = append(notices, n) }}
		l.note(ended, errors.New("context canceled"))
		l.note(t.Context(), err)
		l.observe(t.Context(), &http.Response{StatusCode: http.StatusTooManyRequests}, nil)
		if l.currentFault() != "" || len(notices) > 0 {
			t.Errorf("%v: a fault at once: %+v", err, notices)
		}
		l.failingSince = l.failingSince.Add(-throttleGrace) // as if that much time had passed
		l.note(t.Context(), err)
		if l.currentFault() == "" || len(notices) != 1 || notices[0].Reason != SourceUnreachable {
			t.Errorf("%v: no fault after 30 s: %+v", err, notices)
		}
		l.observe(t.Context(), &http.Response{StatusCode: http.StatusOK}, nil)
		l.note(t.Context(), err)
		if l.currentFault() != "" {
			t.Errorf("%v: a fault after a request that succeeded: %q", err, l.currentFault())
		}
	}
}

// TestConnect checks errors in the kubeconfig.
func TestConnect(t *testing.T) {
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	write(t, good, kubeconfig("https://192.0.2.1:6443", "t"))
	write(t, bad, "{")
	for _, test := range []struct{ kubeconfig, want string }{
		{good, ""},
		{bad, "read kubeconfig " + bad},
		{filepath.Join(dir, "none"), "no such file"},
		{"", "set source.kubernetes.kubeconfig"},
	} {
		_, err := Connect(Connection{Kubeconfig: test.kubeconfig, QPS: 50, Burst: 100, Observe: func(Request) {}})
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("kubeconfig %q: %v, want %q", test.kubeconfig, err, test.want)
		}
	}
}

// kubeconfig returns the text of a kubeconfig.
func kubeconfig(server, token string) string {
	return `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "` + server + `", insecure-skip-tls-verify: true}}], contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: ` + token + `}}]}`
}

// TestConnection checks the headers of requests, that they are observed, and that a new token in the kubeconfig is sent.
func TestConnection(t *testing.T) {
	var headers []http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		headers = append(headers, r.Header)
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	write(t, file, kubeconfig(server.URL, "old"))
	var seen []Request
	client, err := Connect(Connection{
		Kubeconfig: file, QPS: 50, Burst: 100, UserAgent: "pointsman/test", Observe: func(r Request) { seen = append(seen, r) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{kubeconfig(server.URL, "old"), kubeconfig(server.URL, "new"), "{ half of a fi"} {
		write(t, file, text)
		if _, err := client.Services.ListWithContext(t.Context(), metav1.ListOptions{}); err == nil {
			t.Error("list: no error")
		}
	}
	if err := client.CreateEvent(t.Context(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns"}}); err == nil {
		t.Error("create: no error")
	}
	const protobuf = "application/vnd.kubernetes.protobuf"
	for i, want := range []struct{ token, content string }{{"old", ""}, {"new", ""}, {"new", ""}, {"new", protobuf}} {
		h := headers[i]
		if h.Get("Authorization") != "Bearer "+want.token || h.Get("Accept") != protobuf+",application/json" || h.Get("Content-Type") != want.content || h.Get("User-Agent") != "pointsman/test" {
			t.Errorf("request %d has the headers %v, want %+v", i, h, want)
		}
	}
	if len(seen) != 4 || seen[0].Method != "GET" || seen[0].Code != "418" || !strings.HasSuffix(server.URL, seen[0].Host) {
		t.Errorf("observed %+v", seen)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
