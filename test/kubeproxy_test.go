// SPDX-License-Identifier: Apache-2.0

package test

import (
	"reflect"
	"strings"
	"testing"

	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
)

// TestKubeProxyFields holds the table of kube-proxy's fields against kube-proxy's own
// types: each must be there.
func TestKubeProxyFields(t *testing.T) {
	doc := read(t, "../docs/kube-proxy.md")
	fields := leaves(reflect.TypeFor[kubeproxy.KubeProxyConfiguration](), "")
	if len(fields) < 50 {
		t.Fatalf("found only %q", fields)
	}
	for _, field := range fields {
		if !strings.Contains(doc, "`"+field+"`") {
			t.Errorf("docs/kube-proxy.md does not say what becomes of %s", field)
		}
	}
}

// witnesses are, for each difference from kube-proxy that docs/kube-proxy.md lists, by how it begins, the tests of it.
var witnesses = map[string][]string{
	"A change of the config file does not end the process": {"TestConfigFollowed"},
	"A change of the node's addresses or pod ranges":       {"TestNodeIsAnUpdate", "TestKernelNodeChanges"},
	"While the API server does not answer":                 {"TestKernelSourceAway"},
	"`/livez` fails only if a restart":                     {"TestKernelSlowFirstSync", "TestNeverProgrammed"},
	"A Service whose `externalIPs`":                        {"TestKernelBeside", "TestKernelNftablesBeside", "TestKernelHijack"},
	"`pointsman cleanup --kube-proxy` also removes":        {"TestKernelCleansUpAfterKubeProxy", "TestKernelCleansUpAfterOlderKubeProxies"},
	"Comments on rules of mode `iptables`":                 {"TestKernelRulesBesideKubeProxy", "TestKernelCommentsOfManyServices"},
	"In mode `iptables` an endpoint has a KUBE-SEP chain":  {"TestKernelRulesBesideKubeProxy"},
}

// TestKubeProxyDifferences wants each difference from kube-proxy to have tests that hold it, and each test to exist.
func TestKubeProxyDifferences(t *testing.T) {
	_, text, _ := strings.Cut(read(t, "../docs/kube-proxy.md"), "\n## What changes\n")
	text, _, _ = strings.Cut(text, "\n## ")
	differences := strings.Split(text, "\n- ")[1:]
	if len(differences) != len(witnesses) {
		t.Errorf("docs/kube-proxy.md has %d differences, and %d have tests", len(differences), len(witnesses))
	}
	there := allTests(t)
	for _, d := range differences {
		has := false
		for begin, tests := range witnesses {
			if !strings.HasPrefix(d, begin) {
				continue
			}
			has = true
			for _, name := range tests {
				if !there[name] {
					t.Errorf("%s holds %q, and there is no such test", name, begin)
				}
			}
		}
		if !has {
			t.Errorf("no test holds this line of docs/kube-proxy.md: %s", d)
		}
	}
}

// leaves are the fields below t that hold a value, as a file names them.
func leaves(t reflect.Type, path string) (list []string) {
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
			list = append(list, leaves(kind, name)...)
			continue
		}
		list = append(list, name)
	}
	return list
}
