// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/cluster"
)

// manifests applies every folder of manifests as an administrator would, and validates the settings in them. Afterwards
// it revokes all rights.
func manifests(w *world) {
	for _, folder := range []string{"kubernetes", "kubernetes-sidecar"} {
		w.kubectl("apply", "-k", "../../configs/"+folder)
		w.validate(w.setting("pointsman", "host.yaml"))
		containers := w.daemon("pointsman").Spec.Template.Spec.Containers
		if n := len(containers); n != map[string]int{"kubernetes": 1, "kubernetes-sidecar": 3}[folder] {
			w.Errorf("%s: %d containers", folder, n)
		}
		for _, c := range containers[:len(containers)-1] { // the last one is the host's
			if asked := []string{c.Command[0], "alive", c.Args[1]}; c.LivenessProbe == nil || !slices.Equal(c.LivenessProbe.Exec.Command, asked) {
				w.Errorf("%s: who hangs is found by %+v, want %q", folder, c.LivenessProbe, asked)
			}
		}
		w.kubectl("delete", "-k", "../../configs/"+folder)
	}
	w.monitoring()
}

// monitoring adds the component for the Prometheus operator to every form.
func (w *world) monitoring() {
	w.Helper()
	w.kubectl("create", "-f", "testdata/kubeadm.yaml")
	operator := "testdata/prometheus-operator.yaml"
	w.kubectl("apply", "-f", operator)
	w.kubectl("wait", "--for=condition=established", "--timeout=60s", "-f", operator)
	for _, form := range []string{"kubernetes", "kubernetes-sidecar", "kubernetes-replace-kube-proxy"} {
		configs := w.TempDir()
		if err := os.CopyFS(configs, os.DirFS("../../configs")); err != nil {
			w.Fatal(err)
		}
		folder := filepath.Join(configs, form)
		w.add(filepath.Join(folder, "kustomization.yaml"), "components: [../kubernetes-monitoring]\n")
		w.kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)
		w.kubectl("get", "-n", "kube-system", "podmonitor/pointsman", "prometheusrule/pointsman")
		template := w.daemon("pointsman").Spec.Template
		c := template.Spec.Containers[len(template.Spec.Containers)-1]
		if len(c.Ports) != 1 || c.Ports[0].Name != "metrics" || c.Ports[0].ContainerPort != 10249 {
			w.Errorf("%s: the ports are %v", form, c.Ports)
		}
		ofNode := func(e corev1.EnvVar) bool {
			return e.Name == "POINTSMAN_METRICSBINDADDRESS" && e.ValueFrom.FieldRef.FieldPath == "status.hostIP"
		}
		if !slices.ContainsFunc(c.Env, ofNode) || len(c.Env) != 2 {
			w.Errorf("%s: the environment is %v", form, c.Env)
		}
		if template.Labels["k8s-app"] != "" {
			w.Errorf("%s: kube-proxy's DaemonSet would select pods with %v", form, template.Labels)
		}
		w.kubectl("delete", "daemonset", "pointsman", "-n", "kube-system")
	}
}

// add appends text to a file.
func (w *world) add(file, text string) {
	w.Helper()
	before, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(before, text...), 0o644)
	}
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) daemon(name string) *appsv1.DaemonSet {
	w.Helper()
	d, err := w.kube.AppsV1().DaemonSets("kube-system").Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return d
}

func (w *world) setting(name, key string) string {
	w.Helper()
	var m *corev1.ConfigMap
	m, err := w.kube.CoreV1().ConfigMaps("kube-system").Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return m.Data[key]
}

// validate lets pointsman check settings.
func (w *world) validate(text string) {
	w.Helper()
	file := filepath.Join(w.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		w.Fatal(err)
	}
	if out, err := exec.CommandContext(w.Context(), filepath.Join(cluster.Binaries, "pointsman"), "config", "validate", "--file-only", file).CombinedOutput(); err != nil {
		w.Errorf("pointsman config validate: %v: %s\n%s", err, out, text)
	}
}
