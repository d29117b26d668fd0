// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// TestKubeProxy loads files of kube-proxy, and compares the fields that differ from the defaults, and the warnings, with
// the text beside each file.
func TestKubeProxy(t *testing.T) {
	files, err := filepath.Glob("testdata/kubeproxy/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("found %q: %v", files, err)
	}
	defaults := mustLoad(t, "", nil)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			h := mustLoad(t, filepath.ToSlash(file), nil)
			var text strings.Builder
			for _, path := range differing(defaults, h) {
				fmt.Fprintf(&text, "%s: %s\n", path, flatten(h)[path])
			}
			for _, w := range h.From.Warnings {
				fmt.Fprintf(&text, "\n%s", strings.ReplaceAll(w.String(), "testdata/kubeproxy/", ""))
			}
			golden(t, strings.TrimSuffix(file, ".yaml")+".txt", strings.TrimSpace(text.String())+"\n")
		})
	}
}

// TestKubeProxyFields checks that each field of kube-proxy's type has a counterpart, or is known to have none.
func TestKubeProxyFields(t *testing.T) {
	without := []string{"clientConnection.acceptContentTypes", "clientConnection.contentType", "logging.flushFrequency", "featureGates", "winkernel", "windowsRunAsService", "portRange", "showHiddenMetricsForVersion", "logging.verbosity", "logging.vmodule", "logging.options"}
	var visit func(path string, t reflect.Type)
	visit = func(path string, typ reflect.Type) {
		if slices.Contains(without, path) {
			return
		}
		if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[metav1.Duration]() {
			if here, _ := fromKubeProxyField(path, "iptables", DetectClusterCIDR); !isField(here) {
				t.Errorf("kube-proxy's %s becomes the unknown field %s", path, here)
			}
			return
		}
		for _, f := range reflect.VisibleFields(typ) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if len(f.Index) == 1 && name != "" && name != "-" {
				visit(strings.TrimPrefix(path+"."+name, "."), f.Type)
			}
		}
	}
	visit("", reflect.TypeFor[kubeproxy.KubeProxyConfiguration]())
	for _, path := range without {
		if here, _ := fromKubeProxyField(path, "iptables", DetectClusterCIDR); isField(here) {
			t.Errorf("kube-proxy's %s becomes %s; want no counterpart", path, here)
		}
	}
}

// TestKubeProxyFile checks From.KubeProxy.
func TestKubeProxyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kube-proxy.yaml")
	must(t, os.WriteFile(path, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: ipvs\nipvs: {scheduler: rr}\n"), 0o600))
	want := `{"apiVersion":"kubeproxy.config.k8s.io/v1alpha1","ipvs":{"scheduler":"rr"},"kind":"KubeProxyConfiguration","mode":"ipvs"}`
	if got := string(mustLoad(t, path, nil).From.KubeProxy); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := mustLoad(t, "", nil).From.KubeProxy; got != nil {
		t.Errorf("without a file: %s", got)
	}
}

func isField(path string) bool {
	_, known := checkValue(path, nil)
	return known
}
