// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/pointsman/pointsman/host/track"
)

// NodeUnknown is the reason of the notice that this node has no Node object.
const NodeUnknown = "NodeUnknown" // there is no Node object of this name: set `hostnameOverride`, or register the node

// KubeSettings are the settings of a Kubernetes source.
type KubeSettings struct {
	NodeName string                      // name of the Node object to follow
	SetNode  func(leaving, missing bool) // called for each change of the Node object, for load balancers: see health.Server.SetNode
	Report   func(track.Notice)
}

// A KubeSource keeps a tracker up to date with an API server. If the server does not answer or denies access, the
// tracker keeps its state, so the node continues to serve.
type KubeSource struct {
	client   *Client
	tracker  *track.Tracker
	report   func(track.Notice)
	links    []*link
	kinds    []*cache.Reflector
	others   *link        // for listNodes
	unlisted atomic.Int32 // number of kinds that were not listed yet
}

// Kubernetes returns a source that follows the API server of client. It has no effects before Run, which must be called
// only once. The tracker is synced when every kind has been listed.
func Kubernetes(client *Client, t *track.Tracker, s KubeSettings) *KubeSource {
	k := &KubeSource{client: client, tracker: t, report: s.Report}
	ours := metav1.ListOptions{LabelSelector: ourLabels}
	thisNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.NodeName).String()}
	to := sinks(t)
	k.follow("ServiceCIDRs", &networkingv1.ServiceCIDRList{}, client.Ranges, metav1.ListOptions{}, &store{sink: to["ServiceCIDR"]})
	k.follow("Nodes", nil, client.Nodes, thisNode, &store{
		sink: sink{
			set:  as(func(node *corev1.Node) { t.SetNode(node); s.SetNode(isLeaving(node), false) }),
			gone: func(_, name string) { t.DeleteNode(name); s.SetNode(false, true) },
		},
		empty: func() {
			s.SetNode(false, true)
			s.Report(track.Notice{Warning: true, Reason: NodeUnknown, Object: s.NodeName, Message: fmt.Sprintf(
				"there is no Node %q, so no endpoint counts as local: if the node has another name in Kubernetes, set hostnameOverride to it", s.NodeName)})
		},
	})
	k.follow("EndpointSlices", nil, client.Slices, ours, &store{sink: to["EndpointSlice"]})
	k.follow("Services", nil, client.Services, ours, &store{sink: to["Service"]})
	k.others = k.link("addresses of other Nodes", &corev1.NodeList{})
	return k
}

// A sink passes the objects of one kind to the tracker.
type sink struct {
	set  func(object any)
	gone func(namespace, name string)
}

// sinks returns the sink of each kind.
func sinks(t *track.Tracker) map[string]sink {
	return map[string]sink{
		"Service":       {as(t.SetService), t.DeleteService},
		"EndpointSlice": {as(t.SetSlice), t.DeleteSlice},
		"Node":          {as(t.SetNode), func(_, name string) { t.DeleteNode(name) }},
		"ServiceCIDR":   {as(t.SetServiceCIDR), func(_, name string) { t.DeleteServiceCIDR(name) }},
	}
}

// as returns a function that calls set with an object, which must be a T.
func as[T any](set func(T)) func(any) { return func(object any) { set(object.(T)) } }

// ourLabels selects objects that belong to this service proxy and are not headless. The server applies the selector, so
// a change of a label arrives as an addition or a deletion.
const ourLabels = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService

func (k *KubeSource) link(kind string, emptyList runtime.Object) *link {
	l := &link{kind: kind, emptyList: emptyList, report: k.report}
	k.links = append(k.links, l)
	return l
}

// follow adds a reflector that passes the objects in selection from api to h. emptyList is for an optional kind: see
// link.
func (k *KubeSource) follow(kind string, emptyList runtime.Object, api cache.ListerWatcherWithContext, selection metav1.ListOptions, h *store) {
	k.unlisted.Add(1)
	h.listed = sync.OnceFunc(func() {
		if k.unlisted.Add(-1) == 0 {
			k.tracker.Synced()
		}
	})
	var quiet klog.Logger // discards the log of client-go, because the link reports faults
	// The jitter spreads the requests of all nodes over time.
	again := &wait.Backoff{Duration: 500 * time.Millisecond, Cap: 15 * time.Second, Factor: 2, Jitter: 1, Steps: 30}
	way := cache.ToListWatcherWithWatchListSemantics(lister(api, selection, k.link(kind, emptyList)), api)
	k.kinds = append(k.kinds, cache.NewReflectorWithOptions(way, nil, h, cache.ReflectorOptions{Name: kind, Logger: &quiet, Backoff: again}))
}

// Run follows the API server until ctx ends.
func (k *KubeSource) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.Logger{})
	var running sync.WaitGroup
	for _, r := range k.kinds {
		running.Go(func() { r.RunWithContext(ctx) }) // until ctx ends
	}
	k.listNodes(ctx)
	running.Wait()
	return ctx.Err()
}

// nodesEvery is the minimum time between two lists of all Nodes. The host does not watch them: each change of a Node
// would be sent to all nodes.
const nodesEvery = 10 * time.Minute

// listNodes lists all Nodes while the tracker wants their addresses, until ctx ends.
func (k *KubeSource) listNodes(ctx context.Context) {
	var next time.Time // of the next list
	wait.UntilWithContext(k.others.withLink(ctx), func(ctx context.Context) {
		if !k.tracker.ReviewNodes() {
			k.others.note(ctx, nil) // no list is needed, so an earlier failure no longer matters
			return
		} else if time.Now().Before(next) {
			return
		}
		pause := nodesEvery
		list, err := k.client.Nodes.ListWithContext(ctx, metav1.ListOptions{ResourceVersion: "0"}) // from the server's cache
		switch {
		case k.others.skipOptional(ctx, err):
			k.tracker.SetNodes(nil)
		case k.others.note(ctx, err) != nil:
			pause = 10 * time.Second
		default:
			k.tracker.SetNodes(list.(*corev1.NodeList).Items)
		}
		next = time.Now().Add(wait.Jitter(pause, 0.5))
	}, time.Second)
}

// Fault returns why the API server does not answer, or "" if it answers.
func (k *KubeSource) Fault() string {
	for _, l := range k.links {
		if fault := l.currentFault(); fault != "" {
			return fault
		}
	}
	return ""
}

// autoscalerTaint marks a node that is about to be removed.
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// isLeaving reports whether the node is about to be removed.
func isLeaving(node *corev1.Node) bool {
	return !node.DeletionTimestamp.IsZero() ||
		slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
}

// A store passes the objects of one kind from a reflector to the tracker. It replaces the cache of an informer and
// keeps only names: the tracker keeps the fields that matter, and a second copy of every endpoint would use most of the
// host's memory. One reflector calls its methods, one at a time.
type store struct {
	sink
	empty  func()                     // called if a list is empty; may be nil
	listed func()                     // called after each list
	have   sets.Set[cache.ObjectName] // names of the objects that the tracker has; nil before the first list
}

// Add passes an object that is new or has changed to the tracker.
func (h *store) Add(object any) error {
	h.have.Insert(nameOf(object))
	h.set(object)
	return nil
}

// Update is like Add.
func (h *store) Update(object any) error { return h.Add(object) }

// Delete passes the deletion of an object to the tracker.
func (h *store) Delete(object any) error {
	name := nameOf(object)
	h.have.Delete(name)
	h.gone(name.Namespace, name.Name)
	return nil
}

// Replace passes a list to the tracker, and then the deletion of objects that are not in the list. In this order an
// endpoint that moved to another slice is never missing.
func (h *store) Replace(list []any, _ string) error {
	before := h.have
	h.have = make(sets.Set[cache.ObjectName], len(list))
	for _, object := range list {
		_ = h.Add(object) // never errs
	}
	for name := range before.Difference(h.have) {
		h.gone(name.Namespace, name.Name)
	}
	if len(list) == 0 && h.empty != nil {
		h.empty()
	}
	h.listed()
	return nil
}

func nameOf(object any) cache.ObjectName { return cache.MetaObjectToName(object.(metav1.Object)) }

// Resync does nothing, because there is no copy that could differ from the tracker's.
func (h *store) Resync() error { return nil }

// Transformer makes a reflector trim the objects of a list while it arrives as a stream.
func (h *store) Transformer() cache.TransformFunc { return trim }

// trim removes the largest fields that the host does not read.
func trim(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
		delete(o.GetAnnotations(), corev1.LastAppliedConfigAnnotation)
	}
	if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
		for i := range slice.Endpoints {
			slice.Endpoints[i].TargetRef = nil
		}
	}
	return object, nil
}
