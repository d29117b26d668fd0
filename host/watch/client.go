// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
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
	Kubeconfig string  // a file; empty: the service account of the pod
	QPS        float64 // requests each second,
	Burst      int     // and at once
	UserAgent  string
	Observe    func(Request) // called for every request
}

// A Request is one to the API server.
type Request struct {
	Method, Host string
	Code         string        // of the answer, or "<error>"
	Took         time.Duration // until the answer began
	Date         time.Time     // of the server when it answered; zero: not given
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
	config.Dial = dialInTurn(net.DefaultResolver.LookupHost)
	if token := config.BearerToken; token != "" && config.BearerTokenFile == "" {
		config.BearerToken = "" // client-go would keep the first one
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

// sendToken sends the token that the kubeconfig has when a request is made, or if that cannot be read the last one.
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

// observe calls report for every request, and notes the request on its link.
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

// dialInTurn dials the addresses of a host in turn, so that after a server has stopped answering the next connection is to
// another server, if there is one.
func dialInTurn(lookup func(context.Context, string) ([]string, error)) func(context.Context, string, string) (net.Conn, error) {
	var dialed atomic.Uint32
	return func(ctx context.Context, network, address string) (conn net.Conn, err error) {
		host, port, _ := net.SplitHostPort(address) // net/http gives both
		addrs, err := lookup(ctx, host)
		if err != nil {
			return nil, fmt.Errorf("dial %s: %w", address, err)
		}
		slices.Sort(addrs)
		addrs = slices.Compact(addrs)
		each := net.Dialer{Timeout: 30 * time.Second / time.Duration(len(addrs)), KeepAlive: 30 * time.Second}
		for range addrs {
			addr := addrs[int(dialed.Add(1)-1)%len(addrs)]
			if conn, err = each.DialContext(ctx, network, net.JoinHostPort(addr, port)); err == nil {
				break
			}
		}
		return conn, err
	}
}

// answerTimeout is how long the API server may take to answer a question or to take an event.
const answerTimeout = 10 * time.Second

// A Client makes all requests of the host to an API server. The clients of client-go's package kubernetes would link
// every kind of Kubernetes: 20 MB more in memory.
type Client struct {
	Services, Slices, Nodes, Ranges cache.ListerWatcherWithContext

	CreateEvent func(context.Context, *eventsv1.Event) error

	reviews *rest.RESTClient
}

// newClient returns a client whose requests share connections, and the rate of config.
func newClient(config *rest.Config) (*Client, error) {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"}) // of Status, for errors
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

// RoleFile grants the permissions that the host needs.
const RoleFile = "configs/kubernetes/rbac.yaml"

// A Permission allows one kind of request to the API server.
type Permission struct {
	Verb, Group, Resource string
	Name                  string // of the requested object; empty: all objects
	Spared                bool   // the host can do without it
}

// String returns the permission as RBAC names it: "watch endpointslices.discovery.k8s.io".
func (p Permission) String() string {
	return strings.TrimSuffix(p.Verb+" "+p.Resource+"."+p.Group, ".")
}

// Denied returns the permissions that the host of the node needs and does not have. Its requests are allowed to every user
// (system:basic-user). An error means that the server did not answer.
func (c *Client) Denied(ctx context.Context, node string) (denied []Permission, err error) {
	all := []Permission{{Verb: "create", Group: eventsv1.GroupName, Resource: "events", Spared: true}}
	for _, p := range []Permission{
		{Resource: "services"}, {Group: discoveryv1.GroupName, Resource: "endpointslices"},
		{Resource: "nodes", Name: node}, {Group: networkingv1.GroupName, Resource: "servicecidrs", Spared: true},
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
