// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestStoreReplace checks that a list is passed on before the deletions.
func TestStoreReplace(t *testing.T) {
	var story []string
	h := &store{
		sink: sink{
			set:  func(o any) { story = append(story, "set "+o.(*corev1.Service).Name) },
			gone: func(namespace, name string) { story = append(story, "gone "+namespace+"/"+name) },
		},
		listed: func() {},
	}
	named := func(name string) any {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns1", Name: name}}
	}
	steps := []error{
		h.Replace([]any{named("a"), named("b")}, "1"), h.Delete(named("a")), h.Add(named("c")),
		h.Replace([]any{named("c"), named("d")}, "9"), h.Resync(), h.Replace(nil, "10"),
	}
	if err := errors.Join(steps...); err != nil {
		t.Fatal(err)
	}
	slices.Sort(story[7:]) // deletions have no order
	want := []string{"set a", "set b", "gone ns1/a", "set c", "set c", "set d", "gone ns1/b", "gone ns1/c", "gone ns1/d"}
	if !slices.Equal(story, want) {
		t.Errorf("got %v\nwant %v", story, want)
	}
}

// TestTrim checks that the fields that the tracker reads remain.
func TestTrim(t *testing.T) {
	const at = corev1.EndpointsLastChangeTriggerTime
	slice := kubeSlice("10.1.0.1")
	want := slice.DeepCopy()
	want.Annotations = map[string]string{at: "then"}
	slice.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m"}}
	slice.Annotations = map[string]string{at: "then", corev1.LastAppliedConfigAnnotation: "all of it"}
	slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Name: "pod"}
	if got, err := trim(slice); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v (%v)", got, want, err)
	}
}
