// SPDX-License-Identifier: Apache-2.0

package test

import (
	"reflect"
	"strings"
	"testing"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// TestKubeProxyFields looks for every field of kube-proxy's configuration in the table of docs/kube-proxy.md.
func TestKubeProxyFields(t *testing.T) {
	doc := read(t, "../docs/kube-proxy.md")
	fields := leafPaths(reflect.TypeFor[kubeproxy.KubeProxyConfiguration](), "")
	if len(fields) < 50 {
		t.Fatalf("found only %q", fields)
	}
	for _, field := range fields {
		if !strings.Contains(doc, "`"+field+"`") {
			t.Errorf("the table of docs/kube-proxy.md lacks %s", field)
		}
	}
}

// leafPaths returns the paths of the fields below t that have a value.
func leafPaths(t reflect.Type, path string) (list []string) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" || name == "-" { // apiVersion and kind
			continue
		}
		if path != "" {
			name = path + "." + name
		}
		kind := field.Type
		if kind.Kind() == reflect.Struct && kind.Name() != "Duration" && name != "logging.options" && name != "logging.flushFrequency" {
			list = append(list, leafPaths(kind, name)...)
			continue
		}
		list = append(list, name)
	}
	return list
}
