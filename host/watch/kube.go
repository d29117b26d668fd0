// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
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
	"k8s.io/client-go/tools/pager"
	"k8s.io/klog/v2"

	"github.com/pointsman/pointsman/host/track"
)

// NodeUnknown is the reason of the notice that this node has no Node object.
const NodeUnknown = "NodeUnknown" // there is no Node object of this name: set `hostnameOverride`, or register the node

// KubeSettings are the settings of a Kubernetes source.
type KubeSettings struct {
	NodeName string                      // whose Node object is followed
	SetNode  func(leaving, missing bool) // called for each change of it, for load balancers
	Report   func(track.Notice)
}

// A KubeSource keeps a tracker in line with an API server. While the server does not answer, or refuses, the tracker
// stays as it is, and so does the node.
type KubeSource struct {
	client   *Client
	tracker  *track.Tracker
	settings KubeSettings
	links    []*link
	kinds    []*cache.Reflector
	others   *link         // for listNodes
	first    chan struct{} // one for each kind that was listed
}

// Kubernetes returns the source that follows the API server of client. Nothing happens before Run, which is for one
// call.
func Kubernetes(client *Client, t *track.Tracker, s KubeSettings) *KubeSource {
	k := &KubeSource{client: client, tracker: t, settings: s, first: make(chan struct{}, 4)}
	ours := metav1.ListOptions{LabelSelector: ourLabels}
	thisNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.NodeName).String()}
	k.follow(k.link("ServiceCIDRs", &networkingv1.ServiceCIDRList{}), client.Ranges, metav1.ListOptions{}, &store{
		set:  func(o any) { t.SetServiceCIDR(o.(*networkingv1.ServiceCIDR)) },
		gone: func(o cache.ObjectName) { t.DeleteServiceCIDR(o.Name) },
	})
	k.follow(k.link("Nodes", nil), client.Nodes, thisNode, &store{
		set: func(o any) {
			t.SetNode(o.(*corev1.Node))
			s.SetNode(isLeaving(o.(*corev1.Node)), false)
		},
		gone: func(o cache.ObjectName) { t.DeleteNode(o.Name); s.SetNode(false, true) },
		none: func() {
			s.SetNode(false, true)
			s.Report(track.Notice{Warning: true, Reason: NodeUnknown, Object: s.NodeName, Message: fmt.Sprintf(
				"there is no Node %q, so no endpoint counts as local: if the node has another name in Kubernetes, set hostnameOverride to it", s.NodeName)})
		},
	})
	k.follow(k.link("EndpointSlices", nil), client.Slices, ours, &store{
		set:  func(o any) { t.SetSlice(o.(*discoveryv1.EndpointSlice)) },
		gone: func(o cache.ObjectName) { t.DeleteSlice(o.Namespace, o.Name) },
	})
	k.follow(k.link("Services", nil), client.Services, ours, &store{
		set:  func(o any) { t.SetService(o.(*corev1.Service)) },
		gone: func(o cache.ObjectName) { t.DeleteService(o.Namespace, o.Name) },
	})
	k.others = k.link("addresses of other Nodes", &corev1.NodeList{})
	return k
}

// ourLabels selects the objects that no other proxy serves and that have an address. The server applies it, so that a
// label which comes or goes at runtime arrives as a deletion or an addition.
const ourLabels = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService

func (k *KubeSource) link(kind string, without runtime.Object) *link {
	l := &link{kind: kind, without: without, report: k.settings.Report}
	k.links = append(k.links, l)
	return l
}

// follow passes the objects of api that only selects to h.
func (k *KubeSource) follow(l *link, api cache.ListerWatcherWithContext, only metav1.ListOptions, h *store) {
	h.have, h.first = sets.New[cache.ObjectName](), sync.OnceFunc(func() { k.first <- struct{}{} })
	var quiet klog.Logger // the link reports
	// The jitter spreads the requests of all nodes.
	again := &wait.Backoff{Duration: 500 * time.Millisecond, Cap: 15 * time.Second, Factor: 2, Jitter: 1, Steps: 30}
	way := cache.ToListWatcherWithWatchListSemantics(lister(api, only, l), api)
	k.kinds = append(k.kinds, cache.NewReflectorWithOptions(way, nil, h, cache.ReflectorOptions{Name: l.kind, Logger: &quiet, Backoff: again}))
}

// Run follows the API server until ctx ends. The tracker is synced when every kind has been listed once.
func (k *KubeSource) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.Logger{})
	var running sync.WaitGroup
	defer running.Wait()
	for _, r := range k.kinds {
		running.Go(func() { r.RunWithContext(ctx) }) // until ctx ends
	}
	running.Go(func() { k.listNodes(ctx) }) // until ctx ends
	for range k.kinds {
		select {
		case <-k.first:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.tracker.Synced()
	<-ctx.Done()
	return ctx.Err()
}

// nodesEvery is the least time between two lists of all Nodes. If each node watched them, each change of a Node would be
// sent to all nodes.
const nodesEvery = 10 * time.Minute

// listNodes lists all Nodes while the tracker wants their addresses, until ctx ends.
func (k *KubeSource) listNodes(ctx context.Context) {
	var next time.Time // of the next list
	wait.UntilWithContext(k.others.in(ctx), func(ctx context.Context) {
		if !k.tracker.ReviewNodes() {
			k.others.note(ctx, nil) // no list is needed, so an earlier failure no longer matters
			return
		} else if time.Now().Before(next) {
			return
		}
		pause := nodesEvery
		list, err := k.client.Nodes.ListWithContext(ctx, metav1.ListOptions{ResourceVersion: "0"}) // as the server has them in memory
		switch {
		case k.others.spares(ctx, err):
			k.tracker.SetNodes(nil)
		case k.others.note(ctx, err) != nil:
			pause = 10 * time.Second
		default:
			k.tracker.SetNodes(list.(*corev1.NodeList).Items)
		}
		next = time.Now().Add(wait.Jitter(pause, 0.5))
	}, time.Second)
}

// Fault returns why nothing comes from the API server now; empty: it answers.
func (k *KubeSource) Fault() string {
	for _, l := range k.links {
		if fault := l.now(); fault != "" {
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

// A Pod is one that an EndpointSlice names as the target of an endpoint.
type Pod struct {
	Namespace, Name string
	Node            string // empty: not given
	Addrs           []netip.Addr
}

// podsOf returns the pods that a slice names.
func podsOf(slice *discoveryv1.EndpointSlice) (all []Pod) {
	for i := range slice.Endpoints {
		ep := &slice.Endpoints[i]
		ref := ep.TargetRef
		if ref == nil || ref.Kind != "Pod" || ref.Name == "" {
			continue
		}
		p := Pod{Namespace: slice.Namespace, Name: ref.Name}
		if ep.NodeName != nil {
			p.Node = *ep.NodeName
		}
		for _, text := range ep.Addresses {
			if addr, err := netip.ParseAddr(text); err == nil {
				p.Addrs = append(p.Addrs, addr.Unmap())
			}
		}
		all = append(all, p)
	}
	return all
}

// podsTimeout is how long an API server may take to list a namespace's EndpointSlices.
const podsTimeout = 10 * time.Second

// Pods asks the API server for the pods of a namespace that its EndpointSlices name, one for each slice and endpoint: the
// tracker keeps no names of pods, which would be much of the host's memory. It is safe for concurrent use.
func (k *KubeSource) Pods(ctx context.Context, namespace string) (all []Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	pages := pager.New(k.client.Slices.ListWithContext)
	only := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.namespace", namespace).String()}
	if err := pages.EachListItem(ctx, only, func(o runtime.Object) error {
		if slice := o.(*discoveryv1.EndpointSlice); slice.Namespace == namespace {
			all = append(all, podsOf(slice)...)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("list the EndpointSlices of %s: %s", namespace, brief(err))
	}
	return all, nil
}

// A store passes the objects of one kind from a reflector to the tracker. It replaces the cache of an informer and keeps
// only names: the tracker has what matters of an object, and a second copy of every endpoint would be most of the host's
// memory. One reflector calls its methods, one at a time.
type store struct {
	set   func(object any)
	gone  func(cache.ObjectName)
	none  func() // called for an empty list; may be nil
	first func() // called for each list
	have  sets.Set[cache.ObjectName]
}

// Add passes on an object that is new or has changed.
func (h *store) Add(object any) error {
	name, err := cache.ObjectToName(object)
	if err == nil {
		h.have.Insert(name)
		h.set(object)
	}
	return err
}

// Update is Add.
func (h *store) Update(object any) error { return h.Add(object) }

// Delete passes on that an object is gone.
func (h *store) Delete(object any) error {
	name, err := cache.ObjectToName(object)
	if err == nil {
		h.have.Delete(name)
		h.gone(name)
	}
	return err
}

// Replace passes on a whole list, and then what it lacks: an endpoint that moved from one slice to another is never
// missing.
func (h *store) Replace(list []any, _ string) error {
	before := h.have
	h.have = make(sets.Set[cache.ObjectName], len(list))
	for _, object := range list {
		if err := h.Add(object); err != nil {
			return err
		}
	}
	for name := range before.Difference(h.have) {
		h.gone(name)
	}
	if len(list) == 0 && h.none != nil {
		h.none()
	}
	h.first()
	return nil
}

// Resync has nothing to do, because no copy is here that could differ from the tracker's.
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
