// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// TestZpages requests statusz and flagz as clients of Kubernetes components do.
func TestZpages(t *testing.T) {
	b := newHarness(func(s *Settings) {
		s.Config = func() ([]byte, error) {
			return []byte(`{"mode":"iptables","logging":{"level":"info"},"cidrs":["a","b"],"burst":10}`), nil
		}
	})
	const statusz = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
	const flagz = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"
	status := `{"apiVersion":"config.k8s.io/v1beta1","binaryVersion":"v1.2.3","goVersion":"` + runtime.Version() + `","kind":"Statusz","metadata":{"name":"pointsman"},` +
		`"paths":["/configz","/flagz","/healthz","/metrics","/metrics/slis","/proxyMode","/statusz"],"startTime":"2026-01-02T03:04:05Z","uptimeSeconds":0}`
	flags := `{"apiVersion":"config.k8s.io/v1beta1","flags":{"burst":"10","cidrs":"a b","logging.level":"info","mode":"iptables"},"kind":"Flagz","metadata":{"name":"pointsman"}}`
	for _, c := range []struct {
		path, accept string
		body         string // its beginning
	}{
		{"/statusz", "", "pointsman statusz\n"},
		{"/statusz", "*/*", "pointsman statusz\n"},
		{"/statusz", "text/html, text/plain;q=0.9", "pointsman statusz\n"},
		{"/statusz", statusz, status},
		{"/statusz", "application/vnd.kubernetes.protobuf, " + statusz + ", text/plain", status},
		{"/statusz", "application/json", status},
		{"/statusz", "application/cbor", "pointsman statusz\n"},
		{"/flagz", "text/plain", "pointsman flagz\n"},
		{"/flagz", flagz, flags},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", c.path, nil)
		r.Header.Set("Accept", c.accept)
		b.Endpoints().ServeHTTP(w, r)
		kind := "text/plain; charset=utf-8"
		if strings.HasPrefix(c.body, "{") {
			kind = "application/json"
		}
		if w.Code != 200 || !strings.HasPrefix(w.Body.String(), c.body) || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s as %q: %d %s\n%s\nwant\n%s", c.path, c.accept, w.Code, w.Header().Get("Content-Type"), w.Body, c.body)
		}
	}
}

// TestConfigzOfKubeProxy: a kube-proxy configuration file is under kube-proxy's key, beside the current settings.
func TestConfigzOfKubeProxy(t *testing.T) {
	b := newHarness(func(s *Settings) { s.KubeProxy = func() []byte { return []byte(`{"mode":"ipvs"}`) } })
	want := `{"pointsman.dev":{"mode":"iptables"},"kubeproxy.config.k8s.io":{"mode":"ipvs"}}`
	if got := ask(b.Endpoints(), "GET", "/configz", "").Body.String(); got != want {
		t.Errorf("configz says %s, want %s", got, want)
	}
}
