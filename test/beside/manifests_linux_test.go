// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/cluster"
)

// TestManifests applies every folder of manifests as an administrator would, and validates the settings in them.
func TestManifests(t *testing.T) {
	c := newContest(t)
	for _, folder := range []string{"kubernetes", "kubernetes-sidecar"} {
		c.kubectl("apply", "-k", "../../configs/"+folder)
		c.validate(c.setting("pointsman", "host.yaml"))
		containers := c.daemon("pointsman").Spec.Template.Spec.Containers
		if n := len(containers); n != map[string]int{"kubernetes": 1, "kubernetes-sidecar": 3}[folder] {
			c.Errorf("%s: %d containers", folder, n)
		}
		for _, d := range containers[:len(containers)-1] { // the last one is the host's
			if asked := []string{d.Command[0], "alive", d.Args[1]}; d.LivenessProbe == nil || !slices.Equal(d.LivenessProbe.Exec.Command, asked) {
				c.Errorf("%s: who hangs is found by %+v, want %q", folder, d.LivenessProbe, asked)
			}
		}
		c.kubectl("delete", "-k", "../../configs/"+folder)
	}
	c.monitoring()
}

// monitoring adds the component for the Prometheus operator to every form.
func (c *contest) monitoring() {
	c.Helper()
	c.kubectl("create", "-f", "testdata/kubeadm.yaml")
	operator := "testdata/prometheus-operator.yaml"
	c.kubectl("apply", "-f", operator)
	c.kubectl("wait", "--for=condition=established", "--timeout=60s", "-f", operator)
	for _, form := range []string{"kubernetes", "kubernetes-sidecar", "kubernetes-replace-kube-proxy"} {
		configs := c.TempDir()
		if err := os.CopyFS(configs, os.DirFS("../../configs")); err != nil {
			c.Fatal(err)
		}
		folder := filepath.Join(configs, form)
		c.add(filepath.Join(folder, "kustomization.yaml"), "components: [../kubernetes-monitoring]\n")
		c.kubectl("apply", "--server-side", "--force-conflicts", "-k", folder)
		c.kubectl("get", "-n", "kube-system", "podmonitor/pointsman", "prometheusrule/pointsman")
		template := c.daemon("pointsman").Spec.Template
		host := template.Spec.Containers[len(template.Spec.Containers)-1]
		if len(host.Ports) != 1 || host.Ports[0].Name != "metrics" || host.Ports[0].ContainerPort != 10249 {
			c.Errorf("%s: the ports are %v", form, host.Ports)
		}
		ofNode := func(e corev1.EnvVar) bool {
			return e.Name == "POINTSMAN_METRICSBINDADDRESS" && e.ValueFrom.FieldRef.FieldPath == "status.hostIP"
		}
		if !slices.ContainsFunc(host.Env, ofNode) || len(host.Env) != 2 {
			c.Errorf("%s: the environment is %v", form, host.Env)
		}
		if template.Labels["k8s-app"] != "" {
			c.Errorf("%s: kube-proxy's DaemonSet would select pods with %v", form, template.Labels)
		}
		c.kubectl("delete", "daemonset", "pointsman", "-n", "kube-system")
	}
}

// add appends text to a file.
func (c *contest) add(file, text string) {
	c.Helper()
	before, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(before, text...), 0o644)
	}
	if err != nil {
		c.Fatal(err)
	}
}

func (c *contest) daemon(name string) *appsv1.DaemonSet {
	c.Helper()
	d, err := c.AppsV1().DaemonSets("kube-system").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return d
}

func (c *contest) setting(name, key string) string {
	c.Helper()
	var m *corev1.ConfigMap
	m, err := c.CoreV1().ConfigMaps("kube-system").Get(c.Context(), name, metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return m.Data[key]
}

// validate lets pointsman check settings.
func (c *contest) validate(text string) {
	c.Helper()
	file := filepath.Join(c.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		c.Fatal(err)
	}
	if out, err := exec.CommandContext(c.Context(), filepath.Join(cluster.Binaries, "pointsman"), "config", "validate", "--file-only", file).CombinedOutput(); err != nil {
		c.Errorf("pointsman config validate: %v: %s\n%s", err, out, text)
	}
}
