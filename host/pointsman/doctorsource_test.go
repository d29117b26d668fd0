// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/host/config"
)

// apiServer answers reviews of permissions: denied is what it keeps back, as "verb resource".
func apiServer(t *testing.T, denied ...string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // protobuf has words as they are
		allowed := true
		for _, d := range denied {
			verb, resource, _ := strings.Cut(d, " ")
			allowed = allowed && !(bytes.Contains(body, []byte(verb)) && bytes.Contains(body, []byte(resource)))
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%v}}`, allowed)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestDoctorAsksTheAPIServer finds that it does not answer, and which verb on which resource it keeps back.
func TestDoctorAsksTheAPIServer(t *testing.T) {
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tt := range []struct {
		what   string
		url    string
		result admin.Result
		says   string
	}{
		{"all is granted", apiServer(t).URL, admin.OK, "it answers, and grants what the host asks"},
		{"less", apiServer(t, "watch endpointslices", "list endpointslices").URL, admin.Fail,
			"it answers, and this host may not list endpointslices.discovery.k8s.io, watch endpointslices.discovery.k8s.io (as node n1): without that no change of Services reaches this node"},
		{"what it can do without", apiServer(t, "create events").URL, admin.Warn, "this host may not create events.events.k8s.io (as node n1): the host goes on without"},
		{"it is gone", gone.URL, admin.Fail, "connection refused"},
		{"no service account", "", admin.Unknown, "there is no pod's service account here"},
	} {
		dir := t.TempDir()
		kubeconfig := ""
		if tt.url != "" {
			kubeconfig = write(t, filepath.Join(dir, "kubeconfig"), `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: "`+tt.url+`"}}], contexts: [{name: c, context: {cluster: c}}]}`, 0o600)
		}
		file := write(t, filepath.Join(dir, "host.yaml"), "apiVersion: pointsman.dev/v1alpha1\nkind: HostConfig\nhostnameOverride: n1\nsource: {kubernetes: {kubeconfig: \""+kubeconfig+"\"}}\n", 0o600)
		settings, err := config.Load(file, doctorVerb().Flags())
		if err != nil {
			t.Fatal(err)
		}
		got := examination{settings: settings}.server(t.Context())
		if len(got) != 1 || got[0].Result != tt.result || !strings.Contains(got[0].Why, tt.says) {
			t.Errorf("%s: %+v, want %s: %q", tt.what, got, tt.result, tt.says)
		}
		if denied := tt.result == admin.Fail && !strings.Contains(tt.says, "refused"); denied && !strings.Contains(got[0].Try, "configs/kubernetes/rbac.yaml") {
			t.Errorf("%s: try %q", tt.what, got[0].Try)
		}
	}
}
