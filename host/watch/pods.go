// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// A Pod is one that an EndpointSlice names as what is behind an endpoint's addresses (targetRef).
type Pod struct {
	Namespace, Name string
	Node            string // empty: not given
	Addrs           []netip.Addr
}

// podsIn returns the pods that an object names, which only a slice does.
func podsIn(object runtime.Object) []Pod {
	if slice, is := object.(*discoveryv1.EndpointSlice); is {
		return podsOf(slice)
	}
	return nil
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

// Pods returns the pods of a namespace that the manifests name, one for each slice and endpoint. It
// may be called beside Run.
func (f *FileSource) Pods(_ context.Context, namespace string) (all []Pod, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, of := range f.pods {
		if of[0].Namespace == namespace { // a slice and its pods have one
			all = append(all, of...)
		}
	}
	return all, nil
}

// podsTimeout is how long an API server may take to list a namespace's slices, and podsAtOnce how
// many of them it lists in one answer.
const (
	podsTimeout = 10 * time.Second
	podsAtOnce  = 200
)

// Pods asks the API server for the pods of a namespace that its EndpointSlices name, one for each
// slice and endpoint: the tracker keeps no names of pods, which would be much of the host's memory. It
// may be called beside Run.
func (k *KubeSource) Pods(ctx context.Context, namespace string) (all []Pod, err error) {
	ctx, cancel := context.WithTimeout(ctx, podsTimeout)
	defer cancel()
	o := metav1.ListOptions{
		Limit:         podsAtOnce,
		FieldSelector: fields.OneTermEqualSelector("metadata.namespace", namespace).String(),
	}
	for {
		list, err := k.client.Slices.List(ctx, o)
		if err != nil {
			return nil, fmt.Errorf("list the EndpointSlices of %s: %s", namespace, brief(err))
		}
		for i := range list.Items {
			if list.Items[i].Namespace == namespace {
				all = append(all, podsOf(&list.Items[i])...)
			}
		}
		if o.Continue = list.Continue; o.Continue == "" {
			return all, nil
		}
	}
}
