// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
)

// role returns the configuration of an API server that answers reviews by these rules of RBAC, for one node.
func role(t *testing.T, rules []rbacv1.PolicyRule, node string) *rest.Config {
	t.Helper()
	config := serve(t, func(w http.ResponseWriter, r *http.Request) {
		var review authorizationv1.SelfSubjectAccessReview
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || r.Method != http.MethodPost || r.URL.Path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
			t.Errorf("%s %s: %v", r.Method, r.URL, err)
		}
		a := review.Spec.ResourceAttributes
		review.Status.Allowed = (a.Resource != "nodes" || a.Name == node) && slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool {
			return slices.Contains(r.APIGroups, a.Group) && slices.Contains(r.Resources, a.Resource) && slices.Contains(r.Verbs, a.Verb)
		})
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(review)
	})
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return config
}

// TestDenied checks that the role in this repository grants all permissions, and that missing ones are named.
func TestDenied(t *testing.T) {
	file, err := os.Open("../../" + RoleFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var ours rbacv1.ClusterRole
	for documents := yaml.NewYAMLOrJSONDecoder(file, 4096); ours.Kind != "ClusterRole"; {
		ours = rbacv1.ClusterRole{}
		if err := documents.Decode(&ours); err != nil {
			t.Fatal(err)
		}
	}
	less := slices.Clone(ours.Rules)
	less[0].Resources = []string{"services"}
	less[1].Verbs = []string{"list"}
	for _, tt := range []struct {
		what  string
		rules []rbacv1.PolicyRule
		node  string
		want  string
	}{
		{"all", ours.Rules, "n1", ""},
		{"another node", ours.Rules, "n2", "list nodes, watch nodes"},
		{"less", less, "n1", "watch endpointslices.discovery.k8s.io, list nodes, watch nodes"},
		{"nothing", nil, "n1", "create events.events.k8s.io, list services, watch services, list endpointslices.discovery.k8s.io, watch endpointslices.discovery.k8s.io, " +
			"list nodes, watch nodes, list servicecidrs.networking.k8s.io, watch servicecidrs.networking.k8s.io"},
	} {
		c, err := newClient(role(t, tt.rules, tt.node))
		if err != nil {
			t.Fatal(err)
		}
		denied, err := c.Denied(t.Context(), "n1")
		var got []string
		for _, p := range denied {
			got = append(got, p.String())
		}
		if err != nil || strings.Join(got, ", ") != tt.want {
			t.Errorf("%s: denied %q, %v; want %q", tt.what, got, err, tt.want)
		}
	}
}
