// SPDX-License-Identifier: Apache-2.0

package health

import (
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
)

// TestZpages asks for statusz and flagz as clients of Kubernetes' components do.
func TestZpages(t *testing.T) {
	b := newHarness(func(s *Settings) {
		s.Config = func() ([]byte, error) {
			return []byte(`{"mode":"iptables","logging":{"level":"info"},"cidrs":["a","b"],"burst":10}`), nil
		}
	})
	const statusz = "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"
	const flagz = "application/json;v=v1beta1;g=config.k8s.io;as=Flagz"
	status := `{"kind":"Statusz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"pointsman"},"startTime":"2026-01-02T03:04:05Z","uptimeSeconds":0,"goVersion":"` +
		runtime.Version() + `","binaryVersion":"v1.2.3","paths":["/configz","/flagz","/healthz","/metrics","/metrics/slis","/proxyMode","/statusz"]}`
	flags := `{"kind":"Flagz","apiVersion":"config.k8s.io/v1beta1","metadata":{"name":"pointsman"},"flags":{"burst":"10","cidrs":"a b","logging.level":"info","mode":"iptables"}}`
	for _, c := range []struct {
		path, accept string
		code         int
		body         string // its beginning
	}{
		{"/statusz", "", 200, "pointsman statusz\n"},
		{"/statusz", "*/*", 200, "pointsman statusz\n"},
		{"/statusz", "text/html, text/plain;q=0.9", 200, "pointsman statusz\n"},
		{"/statusz", statusz, 200, status},
		{"/statusz", "application/vnd.kubernetes.protobuf, " + statusz + ", text/plain", 200, status},
		{"/statusz", "application/json", 200, status},
		{"/statusz", flagz, 406, "there is text/plain, and " + "application/json;"},
		{"/statusz", "application/json;v=v2;g=config.k8s.io;as=Statusz", 406, "there is"},
		{"/statusz", "application/cbor", 406, "there is"},
		{"/flagz", "text/plain", 200, "pointsman flagz\n"},
		{"/flagz", flagz, 200, flags},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", c.path, nil)
		r.Header.Set("Accept", c.accept)
		b.Endpoints().ServeHTTP(w, r)
		kind := "text/plain; charset=utf-8"
		if strings.HasPrefix(c.body, "{") {
			kind = "application/json"
		}
		if w.Code != c.code || !strings.HasPrefix(w.Body.String(), c.body) || w.Header().Get("Content-Type") != kind {
			t.Errorf("%s as %q: %d %s\n%s\nwant %d\n%s", c.path, c.accept, w.Code, w.Header().Get("Content-Type"), w.Body, c.code, c.body)
		}
	}
}

// TestConfigzOfKubeProxy shows a kube-proxy's file under kube-proxy's key, beside what is in force.
func TestConfigzOfKubeProxy(t *testing.T) {
	b := newHarness(func(s *Settings) { s.KubeProxy = func() []byte { return []byte(`{"mode":"ipvs"}`) } })
	want := `{"pointsman.dev":{"mode":"iptables"},"kubeproxy.config.k8s.io":{"mode":"ipvs"}}`
	if got := ask(b.Endpoints(), "GET", "/configz", "").Body.String(); got != want {
		t.Errorf("configz says %s, want %s", got, want)
	}
}
