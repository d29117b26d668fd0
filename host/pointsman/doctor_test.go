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
	"time"

	"github.com/pointsman/pointsman/host/config"
)

// apiServer answers SelfSubjectAccessReviews with a clock that is behind by skew. It denies the permissions in
// denied, which have the form "verb resource".
func apiServer(t *testing.T, skew time.Duration, denied ...string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body) // protobuf contains the words as plain text
		allowed := true
		for _, d := range denied {
			verb, resource, _ := strings.Cut(d, " ")
			allowed = allowed && !(bytes.Contains(body, []byte(verb)) && bytes.Contains(body, []byte(resource)))
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Date", time.Now().Add(-skew).UTC().Format(http.TimeFormat))
		fmt.Fprintf(w, `{"kind":"SelfSubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":%v}}`, allowed)
	}))
	t.Cleanup(server.Close)
	return server
}

// TestDoctorAPIServer: doctor reports a server that does not answer, denied permissions, and different clocks.
func TestDoctorAPIServer(t *testing.T) {
	for _, name := range []string{"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	for _, tt := range []struct {
		what string
		url  string
		want string // part of the findings
	}{
		{"all is granted", apiServer(t, 0).URL, "ok API server: it answers\nok clock: "},
		{"a permission is denied", apiServer(t, 0, "watch endpointslices").URL, "ok API server: it answers\n" +
			"fail API server: it does not allow this host to watch endpointslices.discovery.k8s.io: no change of Services reaches this node; kubectl apply -f configs/kubernetes/rbac.yaml\nok clock: "},
		{"an optional permission is denied", apiServer(t, 0, "create events").URL, "warn API server: it does not allow this host to create events.events.k8s.io: the host works without it"},
		{"the clocks differ", apiServer(t, time.Minute).URL, "warn clock: this node and the API server differ by 1m"},
		{"it is gone", gone.URL, "fail API server: "},
		{"no service account", "", "unknown API server: source.kubernetes: there is no pod's service account here"},
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
		var lines []string
		for _, f := range server(t.Context(), settings) {
			lines = append(lines, fmt.Sprintf("%s %s: %s; %s", f.Result, f.Check, f.Why, f.Try))
		}
		if got := strings.ReplaceAll(strings.Join(lines, "\n"), "it answers; ", "it answers"); !strings.Contains(got, tt.want) {
			t.Errorf("%s: %s, want %s", tt.what, got, tt.want)
		}
	}
}
