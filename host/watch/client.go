// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/flowcontrol"
)

// A Connection has the settings of a connection to the API server.
type Connection struct {
	Kubeconfig string  // path of a kubeconfig; empty means the service account of the pod
	QPS        float64 // requests per second
	Burst      int     // how many requests may exceed QPS for a moment
	UserAgent  string
	Observe    func(Request) // called for every request
}

// A Request is a finished request to the API server.
type Request struct {
	Method, Host string
	Code         string        // HTTP status of the response, or "<error>"
	Took         time.Duration // until the response began
	Date         time.Time     // time of the server when it responded; zero if it did not say
}

// Connect returns a client of the API server. It sends no request.
func Connect(c Connection) (*Client, error) {
	what := "source.kubernetes: read the pod's service account"
	config, err := rest.InClusterConfig()
	if c.Kubeconfig != "" {
		what = "read kubeconfig " + c.Kubeconfig
		config, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	}
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("source.kubernetes: there is no pod's service account here: set source.kubernetes.kubeconfig, or source.files to serve from manifests")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	config.QPS, config.Burst = float32(c.QPS), c.Burst
	config.UserAgent = c.UserAgent
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	config.WarningHandler = rest.NoWarnings{}
	if token := config.BearerToken; token != "" && config.BearerTokenFile == "" {
		config.BearerToken = "" // client-go would use the first token forever
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { return sendToken(next, c.Kubeconfig, token) })
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observe(next, c.Observe) })
	client, err := newClient(config)
	if err != nil {
		return nil, fmt.Errorf("connect to the API server: %w", err)
	}
	return client, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// sendToken adds the kubeconfig's current token to each request. If the kubeconfig cannot be read, it adds the last
// known token.
func sendToken(next http.RoundTripper, kubeconfig, token string) http.RoundTripper {
	var last atomic.Pointer[string]
	last.Store(&token)
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		if now, err := clientcmd.BuildConfigFromFlags("", kubeconfig); err == nil && now.BearerToken != "" {
			last.Store(&now.BearerToken)
		}
		return transport.NewBearerAuthRoundTripper(*last.Load(), next).RoundTrip(r)
	})
}

// observe calls report for every request, and records the result on the request's link.
func observe(next http.RoundTripper, report func(Request)) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		start := time.Now()
		answer, err := next.RoundTrip(r)
		request := Request{Method: r.Method, Host: r.URL.Host, Code: "<error>", Took: time.Since(start)}
		if err == nil {
			request.Code = strconv.Itoa(answer.StatusCode)
			request.Date, _ = http.ParseTime(answer.Header.Get("Date"))
		}
		report(request)
		if l, ok := r.Context().Value(linkKey{}).(*link); ok {
			l.observe(r.Context(), answer, err)
		}
		return answer, err
	})
}

// answerTimeout limits the time for the API server to respond to an access review or to accept an event.
const answerTimeout = 10 * time.Second

// A Client makes all requests of the host to an API server. It does not use client-go's package kubernetes, because
// linking the types of all API groups costs 20 MB of memory.
type Client struct {
	Services, Slices, Nodes, Ranges cache.ListerWatcherWithContext

	CreateEvent func(context.Context, *eventsv1.Event) error

	reviews *rest.RESTClient
}

// newClient returns a client whose requests share connections and the rate limit of config.
func newClient(config *rest.Config) (*Client, error) {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // for the kind Status, which errors have
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	clients := make(map[string]*rest.RESTClient)
	for version, kinds := range map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion:       {&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{}},
		discoveryv1.SchemeGroupVersion:  {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		networkingv1.SchemeGroupVersion: {&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}},
		eventsv1.SchemeGroupVersion:     {&eventsv1.Event{}},

		authorizationv1.SchemeGroupVersion: {&authorizationv1.SelfSubjectAccessReview{}},
	} {
		scheme.AddKnownTypes(version, kinds...)
		metav1.AddToGroupVersion(scheme, version)
		config.GroupVersion, config.APIPath = &version, "/apis"
		if version.Group == "" {
			config.APIPath = "/api"
		}
		if clients[version.Group], err = rest.RESTClientForConfigAndClient(config, shared); err != nil {
			return nil, err
		}
	}
	of := func(group, resource string) *cache.ListWatch {
		return cache.NewFilteredListWatchFromClient(clients[group], resource, metav1.NamespaceAll, func(*metav1.ListOptions) {})
	}
	return &Client{
		Services: of(corev1.GroupName, "services"),
		Slices:   of(discoveryv1.GroupName, "endpointslices"),
		Nodes:    of(corev1.GroupName, "nodes"),
		Ranges:   of(networkingv1.GroupName, "servicecidrs"),
		reviews:  clients[authorizationv1.GroupName],
		CreateEvent: func(ctx context.Context, e *eventsv1.Event) error {
			return clients[eventsv1.GroupName].Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
		},
	}, nil
}

// RoleFile is the manifest that grants the permissions that the host needs.
const RoleFile = "configs/kubernetes/rbac.yaml"

// A Permission allows one kind of request to the API server.
type Permission struct {
	Verb, Group, Resource string
	Name                  string // name of the requested object; empty means all objects
	Optional              bool   // the host works without it
}

// String returns the permission as RBAC names it: "watch endpointslices.discovery.k8s.io".
func (p Permission) String() string {
	return strings.TrimSuffix(p.Verb+" "+p.Resource+"."+p.Group, ".")
}

// Denied returns the permissions that the host of the node needs and does not have. Every user may make these requests
// (system:basic-user). An error means that the server did not answer.
func (c *Client) Denied(ctx context.Context, node string) (denied []Permission, err error) {
	all := []Permission{{Verb: "create", Group: eventsv1.GroupName, Resource: "events", Optional: true}}
	for _, p := range []Permission{
		{Resource: "services"}, {Group: discoveryv1.GroupName, Resource: "endpointslices"},
		{Resource: "nodes", Name: node}, {Group: networkingv1.GroupName, Resource: "servicecidrs", Optional: true},
	} {
		for _, p.Verb = range []string{"list", "watch"} {
			all = append(all, p)
		}
	}
	for _, p := range all {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: p.Verb, Group: p.Group, Resource: p.Resource, Name: p.Name},
		}}
		request := c.reviews.Post().Resource("selfsubjectaccessreviews").Timeout(answerTimeout).Body(review)
		if err := request.Do(ctx).Into(review); err != nil {
			return nil, fmt.Errorf("ask the API server whether this host may %s: %w", p, err)
		}
		if !review.Status.Allowed {
			denied = append(denied, p)
		}
	}
	return denied, nil
}
