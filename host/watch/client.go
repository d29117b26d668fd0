// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
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
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// A Client is all that the host asks of an API server. The one of client-go (package
// kubernetes) is linked with every kind that Kubernetes has, and has them all in memory.
type Client struct {
	Services    typed[*corev1.ServiceList]
	Slices      typed[*discoveryv1.EndpointSliceList]
	Nodes       typed[*corev1.NodeList]
	Ranges      typed[*networkingv1.ServiceCIDRList]
	CreateEvent func(context.Context, *eventsv1.Event) error

	reviews *rest.RESTClient // of what the host may ask
	inLists bool             // a test's: the server has no stream of everything
}

// A typed is a client's handle of one kind, whose lists are L.
type typed[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
	Watch(context.Context, metav1.ListOptions) (watch.Interface, error)
}

// kinds are those that a Client reads or writes.
func kinds() *runtime.Scheme {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"}) // in which a server refuses
	for version, of := range map[schema.GroupVersion][]runtime.Object{
		corev1.SchemeGroupVersion:       {&corev1.Service{}, &corev1.ServiceList{}, &corev1.Node{}, &corev1.NodeList{}},
		discoveryv1.SchemeGroupVersion:  {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
		networkingv1.SchemeGroupVersion: {&networkingv1.ServiceCIDR{}, &networkingv1.ServiceCIDRList{}},
		eventsv1.SchemeGroupVersion:     {&eventsv1.Event{}},

		authorizationv1.SchemeGroupVersion: {&authorizationv1.SelfSubjectAccessReview{}},
	} {
		s.AddKnownTypes(version, of...)
		metav1.AddToGroupVersion(s, version)
	}
	return s
}

// newClient returns a client whose requests share connections, and the rate of config.
func newClient(config *rest.Config) (*Client, error) {
	shared, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	scheme := kinds()
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(config.QPS, config.Burst)
	var core, discovery, networking, events, reviews *rest.RESTClient
	for version, client := range map[schema.GroupVersion]**rest.RESTClient{
		corev1.SchemeGroupVersion: &core, discoveryv1.SchemeGroupVersion: &discovery,
		networkingv1.SchemeGroupVersion: &networking, eventsv1.SchemeGroupVersion: &events,
		authorizationv1.SchemeGroupVersion: &reviews,
	} {
		config.GroupVersion, config.APIPath = &version, "/apis"
		if version.Group == "" {
			config.APIPath = "/api"
		}
		if *client, err = rest.RESTClientForConfigAndClient(config, shared); err != nil {
			return nil, err
		}
	}
	options := runtime.NewParameterCodec(scheme)
	return &Client{
		Services: resource[*corev1.ServiceList]{core, options, "services", &corev1.ServiceList{}},
		Slices:   resource[*discoveryv1.EndpointSliceList]{discovery, options, "endpointslices", &discoveryv1.EndpointSliceList{}},
		Nodes:    resource[*corev1.NodeList]{core, options, "nodes", &corev1.NodeList{}},
		Ranges:   resource[*networkingv1.ServiceCIDRList]{networking, options, "servicecidrs", &networkingv1.ServiceCIDRList{}},
		reviews:  reviews,
		CreateEvent: func(ctx context.Context, e *eventsv1.Event) error {
			return events.Post().Namespace(e.Namespace).Resource("events").Body(e).Do(ctx).Error()
		},
	}, nil
}

// A resource is typed, by requests.
type resource[L runtime.Object] struct {
	client  *rest.RESTClient
	options runtime.ParameterCodec
	name    string
	none    L // an empty list
}

// List asks for all that o selects.
func (r resource[L]) List(ctx context.Context, o metav1.ListOptions) (L, error) {
	list := r.none.DeepCopyObject().(L)
	return list, r.request(o).Do(ctx).Into(list)
}

// Watch opens one watch and does not retry: the caller waits before the next try.
func (r resource[L]) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	o.Watch = true
	return r.request(o).MaxRetries(0).Watch(ctx)
}

// request takes as long as its options say.
func (r resource[L]) request(o metav1.ListOptions) *rest.Request {
	request := r.client.Get().Resource(r.name).VersionedParams(&o, r.options)
	if o.TimeoutSeconds != nil {
		request.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return request
}
