// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func kubeRange(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

// TestKubeRanges adds and deletes ranges of ClusterIPs.
func TestKubeRanges(t *testing.T) {
	client := fake.NewClientset(kubeNode(), kubeService(), kubeRange("kubernetes", "10.96.0.0/12", "fd00:96::/112"))
	h := newKube(t, client)
	if got := fmt.Sprint(h.next().Node.ServiceCIDRs); got != "[10.96.0.0/12 fd00:96::/112]" {
		t.Errorf("the ranges are %s", got)
	}
	more := kubeRange("more", "10.200.0.0/24", "10.96.0.0/12", "not a range")
	if _, err := client.NetworkingV1().ServiceCIDRs().Create(t.Context(), more, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.next().Node.ServiceCIDRs); got != "[10.96.0.0/12 10.200.0.0/24 fd00:96::/112]" {
		t.Errorf("with more the ranges are %s", got)
	}
	if err := client.NetworkingV1().ServiceCIDRs().Delete(t.Context(), "kubernetes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(h.next().Node.ServiceCIDRs); got != "[10.96.0.0/12 10.200.0.0/24]" {
		t.Errorf("without the first the ranges are %s", got)
	}
}

// TestKubeRangesNotServed checks that a server without the kind, and one that forbids to read it, are no fault.
func TestKubeRangesNotServed(t *testing.T) {
	resource := schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	for name, c := range map[string]struct {
		err  error
		want []string // reasons of notices
	}{
		"an older server": {apierrors.NewNotFound(resource, ""), nil},
		"an older role":   {apierrors.NewForbidden(resource, "", errors.New("no role")), []string{SourceForbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset(kubeNode(), kubeService())
			asked := 0
			client.PrependReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
				asked++
				return true, nil, c.err
			})
			client.PrependWatchReactor("servicecidrs", clienttesting.DefaultWatchReactor(nil, c.err))
			h := newKube(t, client)
			if u := h.next(); len(u.Set) != 1 || len(u.Node.ServiceCIDRs) > 0 {
				t.Errorf("the first update is %+v", u)
			}
			if fault := h.source.Fault(); fault != "" {
				t.Errorf("fault: %s", fault)
			}
			if got := h.reasons(); !slices.Equal(got, c.want) || asked != 1 {
				t.Errorf("%d requests, notices %v, want %v", asked, got, c.want)
			}
		})
	}
}
