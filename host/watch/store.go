// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/pointsman/pointsman/host/track"
)

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
