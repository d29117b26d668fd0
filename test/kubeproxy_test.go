// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kubeproxy "k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
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
	"While the API server does not answer":                 {"TestSourceGone", "TestCluster"},
	"`/livez` fails only if a restart":                     {"TestKernelSlowFirstSync", "TestNeverProgrammed"},
	"A Service whose `externalIPs`":                        {"TestKernelBeside", "TestKernelNftablesBeside", "TestKernelHijack"},
	"`pointsman cleanup --kube-proxy` also removes":        {"TestKernelCleansUpAfterKubeProxy", "TestKernelCleansUpAfterOlderKubeProxies"},
	"Comments on rules of mode `iptables`":                 {"TestKernelRulesBesideKubeProxy", "TestKernelCommentsOfManyServices"},
	"In mode `iptables` an endpoint has a KUBE-SEP chain":  {"TestKernelRulesBesideKubeProxy"},
}

// TestKubeProxyDifferences wants each difference from kube-proxy to have tests that hold it, and each test to exist.
func TestKubeProxyDifferences(t *testing.T) { witnessed(t, "kube-proxy.md", "What changes", witnesses) }

// beside are, for each program that docs/operating.md has symptoms of, the tests of what it says.
var beside = map[string][]string{
	"**NodeLocal DNS":  {"TestKernelField", "TestKernelIPVSField", "TestKernelIPVSNodeLocal", "TestTaken"},
	"**MetalLB":        {"TestKernelIPVSOptions", "TestKernelConforms"},
	"**k3s ServiceLB":  {"TestKernelConforms", "TestKernelIPVSConforms"}, // with load-balancer-at-node-address
	"**Istio":          {"TestKernelField", "TestKernelIPVSField"},
	"**Docker, ufw":    {"TestKernelField", "TestKernelIPVSField"},
	"**ufw, firewalld": {"TestKernelField", "TestKernelIPVSField"},
	"**NetworkManager": {"TestKernelIPVSRepairs"},
	"**SELinux":        {"TestWhatIsMissing"},
}

// TestDocsBeside wants each line about another program to have tests that hold it, and each test to exist.
func TestDocsBeside(t *testing.T) { witnessed(t, "operating.md", "Beside other software", beside) }

// witnessed wants each item of a section to have tests, by how it begins.
func witnessed(t *testing.T, page, section string, witnesses map[string][]string) {
	t.Helper()
	_, text, _ := strings.Cut(read(t, "../docs/"+page), "\n## "+section+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	items := strings.Split(text, "\n- ")[1:]
	if len(items) != len(witnesses) {
		t.Errorf("docs/%s has %d items in %q, and %d have tests", page, len(items), section, len(witnesses))
	}
	there := allTests(t)
	for _, item := range items {
		has := false
		for begin, tests := range witnesses {
			if !strings.HasPrefix(item, begin) {
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
			t.Errorf("no test holds this line of docs/%s: %s", page, item)
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

// TestKubeadmPatch applies our part of kube-proxy's DaemonSet as kubeadm 1.37 applies a file kubeproxydaemonset.yaml of its folder
// of patches: a strategic merge of what kubeadm creates. kube-proxy leaves the nodes with our label, and stays as it is otherwise.
func TestKubeadmPatch(t *testing.T) {
	var created []byte
	for doc := range strings.SplitSeq(read(t, "e2e/testdata/kubeadm.yaml"), "\n---\n") {
		if strings.Contains(doc, "\nkind: DaemonSet\n") {
			created = asJSON(t, doc)
		}
	}
	patched, err := strategicpatch.StrategicMergePatch(created, asJSON(t, read(t, "../configs/kubernetes-replace-kube-proxy/kube-proxy.yaml")), appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	var before, after appsv1.DaemonSet
	if err := errors.Join(json.Unmarshal(created, &before), json.Unmarshal(patched, &after)); err != nil || before.Name != "kube-proxy" {
		t.Fatal(err, before.Name)
	}
	leaves := corev1.NodeSelectorRequirement{Key: "pointsman.dev/proxy", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"pointsman"}}
	before.Spec.Template.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{leaves}}},
	}}}
	if !reflect.DeepEqual(before, after) {
		t.Errorf("the patch makes of kubeadm's DaemonSet\n%s", patched)
	}
}

// asJSON returns one document of YAML.
func asJSON(t *testing.T, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}
