// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// clientOf returns a Client that uses a client of client-go, which may be a fake.
func clientOf(c kubernetes.Interface) *Client {
	return &Client{
		Services: listed(c.CoreV1().Services("")), Slices: listed(c.DiscoveryV1().EndpointSlices("")),
		Nodes: listed(c.CoreV1().Nodes()), Ranges: listed(c.NetworkingV1().ServiceCIDRs()),
		CreateEvent: func(ctx context.Context, e *eventsv1.Event) error {
			_, err := c.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
			return err
		},
	}
}

// inLists is a client whose server cannot stream lists.
type inLists struct{ cache.ListerWatcherWithContext }

func (inLists) IsWatchListSemanticsUnSupported() bool { return true }

func listed[L runtime.Object](typed interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}) inLists {
	list := func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return typed.List(ctx, o) }
	return inLists{&cache.ListWatch{ListWithContextFunc: list, WatchFuncWithContext: typed.Watch}}
}

// serve returns the configuration of a server with this handler.
func serve(t *testing.T, answer http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000, UserAgent: "pointsman/test"}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return config
}

// TestClientReads checks a list, a watch, and an error.
func TestClientReads(t *testing.T) {
	const service = `{"kind":"Service","apiVersion":"v1","metadata":{"namespace":"ns1","name":"web"},"spec":{"clusterIP":"10.96.0.10"}}`
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer := `{"kind":"ServiceCIDRList","apiVersion":"networking.k8s.io/v1","items":[{"metadata":{"name":"kubernetes"}}]}`
		switch {
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusForbidden)
			answer = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`
		case r.URL.Query().Get("watch") != "":
			answer = `{"type":"ADDED","object":` + service + `}{"type":"BOOKMARK","object":{"kind":"Service","apiVersion":"v1","metadata":{"resourceVersion":"9"}}}`
		}
		_, _ = w.Write([]byte(answer))
	})
	c, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Ranges.ListWithContext(t.Context(), metav1.ListOptions{})
	if ranges, ok := list.(*networkingv1.ServiceCIDRList); !ok || err != nil || len(ranges.Items) != 1 || ranges.Items[0].Name != "kubernetes" {
		t.Errorf("listed %+v: %v", list, err)
	}
	changes, err := c.Services.WatchWithContext(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	if got, ok := (<-changes.ResultChan()).Object.(*corev1.Service); !ok || got.Spec.ClusterIP != "10.96.0.10" {
		t.Errorf("the first change is %+v", got)
	}
	if got, ok := (<-changes.ResultChan()).Object.(*corev1.Service); !ok || got.ResourceVersion != "9" {
		t.Errorf("the second change is %+v", got)
	}
	if err := c.CreateEvent(t.Context(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1"}}); !apierrors.IsForbidden(err) {
		t.Errorf("create an event: %v; want that it is forbidden", err)
	}
}

// TestWriteKubeconfig checks that the new kubeconfig has the server of the kubelet's, the token of the service account, and
// no credentials of the kubelet.
func TestWriteKubeconfig(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "kubelet.conf"), filepath.Join(dir, "kubeconfig")
	kubelet := `{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"https://192.0.2.1:6443","tls-server-name":"example.com","certificate-authority":"/none"}}],"users":[{"name":"u","user":{"token":"of-the-kubelet"}}]}`
	write(t, from, kubelet)
	if err := WriteKubeconfig(from, to, "/account"); err != nil {
		t.Fatal(err)
	}
	got, err := clientcmd.LoadFromFile(to)
	if err != nil {
		t.Fatal(err)
	}
	context := got.Contexts[got.CurrentContext]
	server, user := got.Clusters[context.Cluster], got.AuthInfos[context.AuthInfo]
	if server.Server != "https://192.0.2.1:6443" || server.TLSServerName != "example.com" || server.CertificateAuthority != "/account/ca.crt" || user.TokenFile != "/account/token" || user.Token != "" {
		t.Errorf("the server is %+v, the user %+v", server, user)
	}
	if info, err := os.Stat(to); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v, %v; want that other users can read the file", info.Mode(), err)
	}
	for text, want := range map[string]string{
		`{}`: "has no current context",
		strings.Replace(kubelet, `"server"`, `"proxy-url"`, 1): "names no server in its current context",
		"]": "read kubeconfig " + from,
	} {
		write(t, from, text)
		if err := WriteKubeconfig(from, to, "/account"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
