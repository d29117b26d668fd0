// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// clientOf is a Client of client-go's own, which may be a fake.
func clientOf(c kubernetes.Interface) *Client {
	return &Client{
		Services: c.CoreV1().Services(""), Slices: c.DiscoveryV1().EndpointSlices(""),
		Nodes: c.CoreV1().Nodes(), Ranges: c.NetworkingV1().ServiceCIDRs(),
		CreateEvent: func(ctx context.Context, e *eventsv1.Event) error {
			_, err := c.EventsV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
			return err
		},
		inLists: true,
	}
}

// serve has a server answer all that a test asks.
func serve(t *testing.T, answer http.HandlerFunc) *rest.Config {
	t.Helper()
	server := httptest.NewServer(answer)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: 1000, Burst: 1000, UserAgent: "pointsman/test"}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	return config
}

// TestClientAsks has a Client ask what client-go's own asks, to the letter.
func TestClientAsks(t *testing.T) {
	var asked []string
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		h := r.Header
		asked = append(asked, strings.Join([]string{r.Method, r.URL.String(), h.Get("Accept"), h.Get("Content-Type"), h.Get("User-Agent")}, " "))
		w.WriteHeader(http.StatusTeapot)
	})
	theirs, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	ours, err := newClient(config)
	if err != nil {
		t.Fatal(err)
	}
	askAll(t, clientOf(theirs))
	want := asked
	asked = nil
	askAll(t, ours)
	if !slices.Equal(asked, want) || len(want) != 9 {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(asked, "\n"), strings.Join(want, "\n"))
	}
}

func askAll(t *testing.T, c *Client) {
	t.Helper()
	ask(t, c.Services)
	ask(t, c.Slices)
	ask(t, c.Nodes)
	ask(t, c.Ranges)
	if err := c.CreateEvent(t.Context(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: "e"}}); err == nil {
		t.Error("an event was taken")
	}
}

func ask[L runtime.Object](t *testing.T, api typed[L]) {
	t.Helper()
	list := metav1.ListOptions{LabelSelector: ourLabels, ResourceVersion: "7", Limit: 500, Continue: "more"}
	if _, err := api.List(t.Context(), list); err == nil {
		t.Error("there is a list")
	}
	seconds, all := int64(60), true
	watch := metav1.ListOptions{FieldSelector: "metadata.name=n1", TimeoutSeconds: &seconds, AllowWatchBookmarks: true, SendInitialEvents: &all}
	if _, err := api.Watch(t.Context(), watch); err == nil {
		t.Error("there is a watch")
	}
}

// TestClientReads has a server list, tell of a change, and refuse.
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
	ranges, err := c.Ranges.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(ranges.Items) != 1 || ranges.Items[0].Name != "kubernetes" {
		t.Errorf("listed %+v: %v", ranges, err)
	}
	if empty := c.Ranges.(resource[*networkingv1.ServiceCIDRList]).none; len(empty.Items) > 0 {
		t.Error("the next list begins with this one")
	}
	changes, err := c.Services.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	if got, ok := (<-changes.ResultChan()).Object.(*corev1.Service); !ok || got.Spec.ClusterIP != "10.96.0.10" {
		t.Errorf("was told of %+v", got)
	}
	if got, ok := (<-changes.ResultChan()).Object.(*corev1.Service); !ok || got.ResourceVersion != "9" {
		t.Errorf("then of %+v", got)
	}
	if err := c.CreateEvent(t.Context(), &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1"}}); !apierrors.IsForbidden(err) {
		t.Errorf("may write an event: %v", err)
	}
}
