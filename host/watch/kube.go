// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/pointsman/pointsman/host/track"
)

// NodeUnknown is the reason of the notice that this node has no Node object.
const NodeUnknown = "NodeUnknown"

// KubeSettings are how a Kubernetes source goes about it.
type KubeSettings struct {
	NodeName string            // whose Node object is followed
	Eligible func(Eligibility) // called for each Node, and when there is none: whether load balancers may choose it
	Report   func(track.Notice)
}

// A KubeSource keeps a tracker true to a cluster's API server.
//
// While the server does not answer, or refuses, the tracker stays as it is, and so
// does the node: what was served goes on being served.
type KubeSource struct {
	client   *Client
	tracker  *track.Tracker
	settings KubeSettings
	links    []*link
	kinds    []*cache.Reflector
	others   *link         // for listNodes
	first    chan struct{} // one for each kind that was listed
}

// Kubernetes returns the source that follows the API server of client. Nothing happens
// before Run, which is for one call.
func Kubernetes(client *Client, t *track.Tracker, s KubeSettings) *KubeSource {
	k := &KubeSource{client: client, tracker: t, settings: s, first: make(chan struct{}, 4)}
	ours := metav1.ListOptions{LabelSelector: ourLabels}
	thisNode := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, s.NodeName).String()}
	services := newStore("Services",
		func(o any) { t.SetService(o.(*corev1.Service)) },
		func(key track.Key) { t.DeleteService(key.Namespace, key.Name) })
	joined := newStore("EndpointSlices",
		func(o any) { t.SetSlice(o.(*discoveryv1.EndpointSlice)) },
		func(key track.Key) { t.DeleteSlice(key.Namespace, key.Name) })
	ranges := newStore("ServiceCIDRs",
		func(o any) { t.SetServiceCIDR(o.(*networkingv1.ServiceCIDR)) },
		func(key track.Key) { t.DeleteServiceCIDR(key.Name) })
	ranges.without = &networkingv1.ServiceCIDRList{}
	followKind(k, ranges, &networkingv1.ServiceCIDR{}, client.Ranges, metav1.ListOptions{})
	followKind(k, k.nodes(), &corev1.Node{}, client.Nodes, thisNode)
	followKind(k, joined, &discoveryv1.EndpointSlice{}, client.Slices, ours)
	followKind(k, services, &corev1.Service{}, client.Services, ours)
	k.others = &link{kind: "addresses of other Nodes", without: &corev1.NodeList{}, report: s.Report}
	k.links = append(k.links, k.others)
	return k
}

// ourLabels selects what no other proxy has been given, and what has an address
// of its own. The server does it, so that a label which comes or goes at runtime
// arrives as a deletion or an addition.
const ourLabels = "!service.kubernetes.io/service-proxy-name,!" + corev1.IsHeadlessService

// followKind passes what api has of those that only selects to h.
func followKind[L runtime.Object](k *KubeSource, h *store, example any, api typed[L], only metav1.ListOptions) {
	l := &link{kind: h.kind, without: h.without, report: k.settings.Report}
	k.links = append(k.links, l)
	h.first = func() { k.first <- struct{}{} }
	lw := lister(api, only, l)
	var way cache.ListerWatcher = lw
	if h.without != nil || k.client.inLists {
		way = inLists{lw} // only that says at once that there is nothing to be had
	}
	var quiet klog.Logger // the link says what there is to say
	k.kinds = append(k.kinds, cache.NewReflectorWithOptions(
		way, example, h,
		cache.ReflectorOptions{Name: h.kind, Logger: &quiet, Backoff: again()},
	))
}

// inLists makes a reflector ask for a list, not for a stream of everything.
type inLists struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported makes a reflector ask for a list.
func (inLists) IsWatchListSemanticsUnSupported() bool { return true }

// again returns how long to wait before a server that fails is asked again: soon at first,
// then each quarter of a minute, and as much longer as chance has it, so that not all
// nodes come at once.
func again() *wait.Backoff {
	const first, most = 500 * time.Millisecond, 15 * time.Second
	return &wait.Backoff{Duration: first, Cap: most, Factor: 2, Jitter: 1, Steps: int(most / first)}
}

// Run follows the API server until ctx ends. The tracker is synced when every kind
// has been listed once, however long that takes.
func (k *KubeSource) Run(ctx context.Context) error {
	ctx = klog.NewContext(ctx, klog.Logger{})
	var running sync.WaitGroup
	for _, r := range k.kinds {
		running.Go(func() { r.RunWithContext(ctx) }) // until ctx ends
	}
	running.Go(func() { k.listNodes(ctx) }) // until ctx ends
	defer running.Wait()
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

// nodesEvery is the least time between two lists of all Nodes. If each node watched them, each change of a Node
// would be sent to all nodes.
const nodesEvery = 10 * time.Minute

// listNodes lists all Nodes while the tracker wants their addresses, until ctx ends.
func (k *KubeSource) listNodes(ctx context.Context) {
	var next time.Time // of the next list
	ctx = context.WithValue(ctx, linkOf{}, k.others)
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if !k.tracker.ReviewNodes() {
			_ = k.others.note(ctx, nil) // no list is needed, so an earlier failure no longer matters
			return
		} else if time.Now().Before(next) {
			return
		}
		pause := nodesEvery
		list, err := k.client.Nodes.List(ctx, metav1.ListOptions{ResourceVersion: "0"}) // as the server has them in memory
		switch {
		case k.others.spared(ctx, err):
			k.tracker.SetNodes(nil)
		case k.others.note(ctx, err) != nil:
			pause = 10 * time.Second
		default:
			k.tracker.SetNodes(list.Items)
		}
		next = time.Now().Add(wait.Jitter(pause, 0.5))
	}, time.Second)
}

// Fault says why nothing comes from the API server now; empty: it answers.
func (k *KubeSource) Fault() string {
	for _, l := range k.links {
		if fault := l.now(); fault != "" {
			return fault
		}
	}
	return ""
}

func (k *KubeSource) nodes() *store {
	h := newStore("Nodes",
		func(o any) {
			node := o.(*corev1.Node)
			k.tracker.SetNode(node)
			k.settings.Eligible(eligible(node))
		},
		func(key track.Key) { k.tracker.DeleteNode(key.Name); k.settings.Eligible(NoNode) })
	h.none = func() {
		k.settings.Eligible(NoNode)
		k.settings.Report(track.Notice{Warning: true, Reason: NodeUnknown, Object: k.settings.NodeName, Message: fmt.Sprintf(
			"there is no Node %q, so no endpoint counts as local: if the node has another name in Kubernetes, set hostnameOverride to it", k.settings.NodeName)})
	}
	return h
}

// autoscalerTaint says that a node is about to be removed.
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// Eligibility says whether load balancers may send new connections to this node.
type Eligibility uint8

// The eligibilities.
const (
	Eligible Eligibility = iota
	Leaving              // the Node is about to be removed
	NoNode               // there is no Node object of this name
)

func eligible(node *corev1.Node) Eligibility {
	tainted := slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint })
	if tainted || !node.DeletionTimestamp.IsZero() {
		return Leaving
	}
	return Eligible
}

// A store passes on what a reflector hears of one kind. It stands where an informer
// has its cache, and keeps only names: what matters of an object is in the
// tracker, and a second copy of every endpoint would be most of the host's
// memory. For the same reason there is nothing to go through again now and then:
// no copy is here that could differ from the tracker's.
//
// Its methods are called by one reflector, one at a time, but for Resync.
type store struct {
	kind  string
	set   func(object any)
	gone  func(track.Key)
	none  func() // the list was empty; nil: never mind
	first func() // called once, after the first list

	// without is the list of a server that does not have the kind, or does not let us read it:
	// ServiceCIDRs are in the API since Kubernetes 1.33, and a role from before we asked for them
	// keeps them from us. The host then goes on without, as each ClusterIP that is in use is known
	// anyway. nil: that is a fault.
	without runtime.Object

	have map[track.Key]struct{}
}

var _ cache.TransformingStore = (*store)(nil)

func newStore(kind string, set func(any), gone func(track.Key)) *store {
	return &store{kind: kind, set: set, gone: gone, have: make(map[track.Key]struct{})}
}

// Add passes on an object that is new.
func (h *store) Add(object any) error {
	key, err := keyOf(object)
	if err != nil {
		return err
	}
	object, _ = trim(object) // it never fails
	h.have[key] = struct{}{}
	h.set(object)
	return nil
}

// Update passes on an object that may have changed.
func (h *store) Update(object any) error { return h.Add(object) }

// Delete passes on that an object is gone.
func (h *store) Delete(object any) error {
	key, err := keyOf(object)
	if err != nil {
		return err
	}
	delete(h.have, key)
	h.gone(key)
	return nil
}

// Replace passes on a whole list, and that what it lacks is gone. What is new goes
// first: an endpoint that moved from one slice to another is never missing.
func (h *store) Replace(list []any, _ string) error {
	before := h.have
	h.have = make(map[track.Key]struct{}, len(list))
	for _, object := range list {
		if err := h.Add(object); err != nil {
			return err
		}
	}
	for key := range before {
		if _, stays := h.have[key]; !stays {
			h.gone(key)
		}
	}
	if len(list) == 0 && h.none != nil {
		h.none()
	}
	if h.first != nil {
		h.first()
		h.first = nil
	}
	return nil
}

// Resync has nothing to do: see store.
func (h *store) Resync() error { return nil }

// Transformer keeps a list small while it comes in as a stream. Only then does a
// reflector ask for it: what comes in at once, or later, Add trims.
func (h *store) Transformer() cache.TransformFunc { return trim }

func keyOf(object any) (track.Key, error) {
	m, err := meta.Accessor(object)
	if err != nil {
		return track.Key{}, fmt.Errorf("reading an object's name: %w", err)
	}
	return track.Key{Namespace: m.GetNamespace(), Name: m.GetName()}, nil
}

// trim removes from an object what the host does not read: which program wrote which field, and
// all annotations but the one that says when an endpoint changed.
func trim(object any) (any, error) {
	m, ok := object.(metav1.Object)
	if !ok {
		return object, nil
	}
	m.SetManagedFields(nil)
	m.SetOwnerReferences(nil)
	m.SetFinalizers(nil)
	var kept map[string]string
	if at, ok := m.GetAnnotations()[corev1.EndpointsLastChangeTriggerTime]; ok {
		kept = map[string]string{corev1.EndpointsLastChangeTriggerTime: at}
	}
	m.SetAnnotations(kept)
	switch o := object.(type) {
	case *corev1.Node:
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses}
	case *corev1.Service:
		o.Spec.Selector = nil
		o.Status.Conditions = nil
	case *discoveryv1.EndpointSlice:
		for i := range o.Endpoints {
			o.Endpoints[i].TargetRef, o.Endpoints[i].Hostname, o.Endpoints[i].DeprecatedTopology = nil, nil, nil
		}
	}
	return object, nil
}
