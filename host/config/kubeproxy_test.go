// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// TestKubeProxy loads kube-proxy's own files and compares what is in force that is
// no default, and every warning, with the text beside it.
func TestKubeProxy(t *testing.T) {
	files, err := filepath.Glob("testdata/kubeproxy/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			h := mustLoad(t, filepath.ToSlash(file), nil)
			var lines []string
			for _, line := range strings.Split(string(mustYAML(t, h)), "\n") {
				if strings.Contains(line, " # ") && !strings.HasSuffix(line, "# default") {
					lines = append(lines, line)
				}
			}
			lines = append(lines, "")
			for _, w := range h.Warnings() {
				lines = append(lines, w.String())
			}
			text := strings.ReplaceAll(strings.Join(lines, "\n")+"\n", "testdata/kubeproxy/", "")
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", text)
		})
	}
}

// TestKubeProxyFields goes through kube-proxy's own definition: each field has a
// place here, or is one of those that are known to have none.
func TestKubeProxyFields(t *testing.T) {
	moves := kubeProxyMoves("iptables", DetectClusterCIDR)
	var visit func(path string, t reflect.Type)
	visit = func(path string, typ reflect.Type) {
		if _, ok := moves[path]; ok || isUnmoved(path) {
			return
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[metav1.Duration]() {
			t.Errorf("kube-proxy's %s has no place here", path)
			return
		}
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if len(f.Index) == 1 && name != "" && name != "apiVersion" && name != "kind" {
				visit(join(path, name), f.Type)
			}
		}
	}
	visit("", reflect.TypeFor[kubeproxy.KubeProxyConfiguration]())

	places := make(map[string]bool)
	for _, f := range fields(withSources("iptables", "ipvs", "userspace")) {
		places[f.path] = true
	}
	for from, m := range moves {
		if plugin, _, ok := strings.Cut(m.to, ".options."); m.idle == "" && !places[m.to] && !(ok && places[plugin+".options"]) {
			t.Errorf("%s goes to %q, which is no field", from, m.to)
		}
	}
}

// TestKubeProxyFile is at hand as JSON, and no other file is.
func TestKubeProxyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-proxy.yaml")
	if err := os.WriteFile(path, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\nipvs: {scheduler: rr}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","ipvs":{"scheduler":"rr"},"kind":"KubeProxyConfiguration","mode":"ipvs"}`
	if got := string(mustLoad(t, path, nil).KubeProxy()); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := mustLoad(t, "", nil).KubeProxy(); got != nil {
		t.Errorf("no file is %s", got)
	}
}
