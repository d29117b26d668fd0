// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"crypto/sha256"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/pointsman/pointsman/host/track"
)

// A Kind is what kind of object a manifest holds.
type Kind string

// The kinds that are served.
const (
	Service       Kind = "Service"
	EndpointSlice Kind = "EndpointSlice"
	Node          Kind = "Node"
)

// An ID names one object.
type ID struct {
	Kind      Kind
	Namespace string // empty for a Node
	Name      string
}

func (id ID) String() string {
	if id.Namespace == "" {
		return string(id.Kind) + " " + id.Name
	}
	return string(id.Kind) + " " + id.Namespace + "/" + id.Name
}

// An Object is one object as a file defines it.
type Object struct {
	ID      ID
	Line    int
	Service string // of an EndpointSlice: the Service it says it belongs to

	value runtime.Object // nil once passed on, to free the memory
	sum   sum            // equal sums are equal objects
}

type sum [sha256.Size]byte

// Tell passes o to t.
func (o Object) Tell(t *track.Tracker) {
	switch v := o.value.(type) {
	case *corev1.Service:
		t.SetService(v)
	case *discoveryv1.EndpointSlice:
		t.SetSlice(v)
	case *corev1.Node:
		t.SetNode(v)
	}
}

// forget removes the object named id from t.
func (id ID) forget(t *track.Tracker) {
	switch id.Kind {
	case Service:
		t.DeleteService(id.Namespace, id.Name)
	case EndpointSlice:
		t.DeleteSlice(id.Namespace, id.Name)
	case Node:
		t.DeleteNode(id.Name)
	}
}

// order returns the order in which kinds are passed on: the one in which the least is decided twice.
func (k Kind) order() int {
	switch k {
	case Node:
		return 0
	case EndpointSlice:
		return 1
	}
	return 2
}
