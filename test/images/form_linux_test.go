// SPDX-License-Identifier: Apache-2.0

package images

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// A form is what manifests make of a node: the pod of its DaemonSet, and the settings in its ConfigMap.
type form struct {
	pod      corev1.PodSpec
	settings string
}

// container is the pod's container of a name.
func (f form) container(t testing.TB, name string) corev1.Container {
	t.Helper()
	i := slices.IndexFunc(f.pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("the pod has no container %s", name)
	}
	return f.pod.Containers[i]
}

// document is a manifest as JSON.
func document(t testing.TB, file string) []byte {
	t.Helper()
	text, err := os.ReadFile("../../configs/" + file)
	if err != nil {
		t.Fatal(err)
	}
	var object map[string]any
	if err := yaml.Unmarshal(text, &object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return data
}

// oneContainer is the form in which the host starts its dataplanes as its children.
func oneContainer(t testing.TB, mode string) form {
	t.Helper()
	var f form
	f.read(t, document(t, "kubernetes/daemonset.yaml"), document(t, "kubernetes/config.yaml"))
	f.settings = strings.Replace(f.settings, "mode: iptables", "mode: "+mode, 1) + "linux: {conntrack: {maxPerCore: 0}}\n" // its limits are the machine's
	return f
}

// containerEach is the form in which each dataplane is in a container of its own, where one of a mode other than
// iptables takes the place of nftables; options are that mode's.
func containerEach(t testing.TB, mode, options string) form {
	t.Helper()
	patched, err := strategicpatch.StrategicMergePatch(document(t, "kubernetes/daemonset.yaml"), document(t, "kubernetes-sidecar/dataplane.yaml"), appsv1.DaemonSet{})
	if err != nil {
		t.Fatal(err)
	}
	second := mode
	if mode == "iptables" {
		second = "nftables"
	}
	var f form
	f.read(t, []byte(strings.ReplaceAll(string(patched), "nftables", second)), document(t, "kubernetes-sidecar/settings.yaml"))
	f.settings = strings.NewReplacer("mode: iptables", "mode: "+mode, "nftables", second).Replace(f.settings)
	f.settings = regexp.MustCompile(`(`+mode+`:\n *address: .*\n *options: ){.*}`).ReplaceAllString(f.settings, "${1}"+options)
	return f
}

// read reads a DaemonSet and a ConfigMap. Services come from files, for the API server is not what is tested.
func (f *form) read(t testing.TB, daemon, config []byte) {
	t.Helper()
	var d appsv1.DaemonSet
	if err := json.Unmarshal(daemon, &d); err != nil {
		t.Fatal(err)
	}
	var c corev1.ConfigMap
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	f.pod = d.Spec.Template.Spec
	f.settings = strings.Replace(c.Data["host.yaml"], "kubernetes: {}", "files: {path: services}", 1)
	if !strings.Contains(f.settings, "files: {path: services}") {
		t.Fatalf("the settings do not come from a service account:\n%s", f.settings)
	}
}

const manifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 172.30.0.10
  ports: [{port: 8080, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.0.1]}, {addresses: [10.244.1.1]}]
`
