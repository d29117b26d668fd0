// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// verbs checks that rbac.yaml grants exactly the rights for the requests that the hosts send to the API server.
func verbs(w *world) {
	role, err := w.kube.RbacV1().ClusterRoles().Get(w.Context(), "pointsman", metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	granted := make(map[string]bool)
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			if group := rule.APIGroups[0]; group != "" {
				resource = group + "/" + resource
			}
			for _, verb := range rule.Verbs {
				granted[verb+" "+resource] = true
			}
		}
	}
	if asked := w.api.Asked(account); !maps.Equal(asked, granted) {
		w.Errorf("the hosts asked for %q, and rbac.yaml grants %q", slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(granted)))
	}
}
