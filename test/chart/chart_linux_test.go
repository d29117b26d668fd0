// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/cluster"
)

const (
	folder  = "../../charts/pointsman"
	configs = "../../configs/"
)

// helm runs helm without the machine's own settings for it, and returns the output; if it fails with the error's text.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program, err := filepath.Abs("../../bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("needs helm: make bin/helm builds it, in some minutes")
	}
	home := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = []string{"HOME=" + home, "HELM_CACHE_HOME=" + home, "HELM_CONFIG_HOME=" + home, "HELM_DATA_HOME=" + home, "KUBECONFIG=" + home + "/none"}
	var stderr bytes.Buffer // it also prints that files are links
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out) + stderr.String(), err
	}
	return string(out), nil
}

// render returns what the chart makes of values.
func render(t *testing.T, args ...string) string {
	t.Helper()
	out, err := helm(t, append([]string{"template", "pointsman", folder, "--namespace", "kube-system"}, args...)...)
	if err != nil {
		t.Fatalf("helm template %q: %v: %s", args, err, out)
	}
	return out
}

// ways returns the ways of use: the files of values in testdata.
func ways(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("testdata/*.values.yaml")
	if err != nil || len(all) < 5 {
		t.Fatalf("found only %q: %v", all, err)
	}
	return all
}

// TestChartGolden compares what the chart renders with golden text. POINTSMAN_UPDATE_CHART=1 writes that text.
func TestChartGolden(t *testing.T) {
	for _, file := range ways(t) {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := render(t, "--values", file)
			file := strings.TrimSuffix(file, ".values.yaml") + ".golden.yaml"
			if os.Getenv("POINTSMAN_UPDATE_CHART") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(file)
			if err != nil || got != string(want) {
				t.Errorf("%s is not what the chart renders (%v); try: POINTSMAN_UPDATE_CHART=1 make test-chart, and read the difference", file, err)
			}
		})
	}
}

// golden returns the golden text for the values in a file.
func golden(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(strings.TrimSuffix(file, ".values.yaml") + ".golden.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestChartLint runs helm lint.
func TestChartLint(t *testing.T) {
	for _, file := range ways(t) {
		if out, err := helm(t, "lint", "--strict", "--quiet", "--namespace", "kube-system", "--values", file, folder); err != nil {
			t.Errorf("helm lint --values %s: %v: %s", file, err, out)
		}
	}
}

// pinned returns a digest of one repeated character.
func pinned(c string) string { return "sha256:" + strings.Repeat(c, 64) }

// added is a volume that needs a mount.
const added = "extraVolumes[0].name=a,extraVolumes[0].hostPath.path=/a,extraVolumeMounts[0].name=a,"

// acme is a plugin.
const acme = "plugins[0].name=acme,plugins[0].image=r/acme,"

// TestChartRefuses checks that the chart rejects invalid values, and that the error names the value and the reason.
func TestChartRefuses(t *testing.T) {
	for set, says := range map[string]string{
		"mode=IPTables":                                          "/mode",
		"moed=iptables":                                          "moed",
		"form=both":                                              "'children', 'sidecar'",
		"dataplanes={}":                                          "/dataplanes",
		"dataplanes={nftables}":                                  "mode is iptables, and the pods have nftables",
		"mode=ipvs":                                              "take one of these, or add ipvs to dataplanes",
		"dataplanes={iptables,nftabels}":                         "a name in dataplanes is nftabels, and the images have iptables, nftables, ipvs, userspace, auto",
		"clusterCIDRs={10.244.0.0}":                              "/clusterCIDRs/0",
		"config.mode=ipvs":                                       "'mode' not allowed",
		"config.bogus=1":                                         "'bogus' not allowed",
		"config.linux.conntrack.maxPerCPU=1":                     "'maxPerCPU' not allowed",
		"config.plugins.ipvs.option.strictARP=true":              "'option' not allowed",
		"form=children,mode=nftabels":                            "mode is nftabels, and the images have iptables, nftables, ipvs, userspace, auto",
		"pools[0].name=a,pools[0].mode=ipvs":                     "the mode of pool a is ipvs, and the pods have iptables, nftables",
		"pools[0].name=a,pools[0].config.bogus=1":                "'bogus' not allowed",
		"apiServer.port=0":                                       "/apiServer/port",
		"resources.request.cpu=1":                                "request",
		"pools[0].name=a":                                        "/pools/0",
		"kubeProxy.checkNodes={A_B}":                             "/kubeProxy/checkNodes/0",
		"image.pullPolicy=Sometimes":                             "/image/pullPolicy",
		"mode=auto":                                              "mode is auto, which form: sidecar does not support",
		"kubeProxy.checkNodes={a}":                               "set kubeProxy.replace: true too",
		"monitoring.interval=30s":                                "interval",
		"serviceAccount.name=A B":                                "/serviceAccount/name",
		"terminationGracePeriodSeconds=1":                        "/terminationGracePeriodSeconds",
		"form=sidecar,kubeProxy.replace=true":                    "set form: children",
		"imageVolumes=maybe":                                     "/imageVolumes",
		"plugins[0].name=acme":                                   "'image'",
		"plugins[0].image=r/acme,plugins[0].name=Acme":           "/plugins/0/name",
		"plugins[0].image=r/acme,plugins[0].name=ipvs":           "have the name ipvs",
		"kubeProxy.replace=true,config.minSyncPeriod=2s":         "config has no effect: change the ConfigMap",
		"plugins[0].name=acme,plugins[0].image=r/acme,mode=acne": "mode is acne, and the pods have iptables, nftables, acme",
		"plugins[0].name=acme,plugins[0].image=r/acme,plugins[0].digest=sha256:9f86d08": "/plugins/0/digest",
		"plugins[0].name=acme,plugins[0].image=r/acme,plugins[0].capabilities={cap}":    "/plugins/0/capabilities/0",
		"plugins[0].name=a,plugins[0].image=r/a,plugins[1].name=a,plugins[1].image=r/b": "have the name a",
		"plugins[0].name=pointsman,plugins[0].image=r/acme,form=children":               "have the name pointsman",
		"apiServer.kubeletKubeconfig=kubelet.conf":                                      "/apiServer/kubeletKubeconfig",
		"apiServer.kubeletKubeconfig=/k,apiServer.host=192.0.2.1":                       "each set the address of the API server",
		"apiServer.kubeletKubeconfig=/k,kubeProxy.replace=true":                         "each set the address of the API server",
		"image.digest=sha256:abc":                                                                         "/image/digest",
		"image.tag=v1@sha256:abc":                                                                         "/image/tag",
		"dataplaneImage.digests.ipvs=" + pinned("c"):                                                      "dataplaneImage.digests has ipvs, and dataplanes has iptables, nftables",
		"dataplaneImage.digests.nftables=" + pinned("c"):                                                  "dataplaneImage.digests does not have iptables",
		"form=children,dataplaneImage.tag=v2":                                                             "one image has all dataplanes: leave it out",
		"form=children,dataplanes={ipvs}":                                                                 "the host starts the plugin of the mode",
		"clusterCIDRs={10.0.0.0/8,10.244.0.0/16}":                                                         "which are of one IP family",
		"config.detectLocalMode=NodeCIDR":                                                                 "set clusterCIDRs: []",
		"config.plugins.ipvs.options.strictARP=true":                                                      "config has plugins.ipvs, and the pods have iptables, nftables: add ipvs to dataplanes or plugins",
		"kubeProxy.replace=true,clusterCIDRs={10.0.0.0/8}":                                                "clusterCIDRs has no effect",
		"kubeProxy.configMap=other":                                                                       "has no effect without kubeProxy.replace",
		"apiServer.port=443":                                                                              "has no effect without apiServer.host",
		"serviceAccount.create=false,serviceAccount.annotations.a=b":                                      "annotate the existing one",
		"updateStrategy.type=OnDelete,minReadySeconds=60":                                                 "leave one of them out",
		"updateStrategy.rollingUpdate.maxUnavailable=0":                                                   "maxUnavailable",
		"updateStrategy.rollingUpdate.maxUnavailable=0%":                                                  "maxUnavailable",
		"updateStrategy.rollingUpdate.maxSurge=1":                                                         "maxSurge",
		"resources.requests.cpu=much":                                                                     "/resources/requests/cpu",
		"tolerations[0].operator=Exist":                                                                   "/tolerations/0/operator",
		"tolerations[0].effects=NoSchedule":                                                               "effects",
		"priorityClassName=A B":                                                                           "/priorityClassName",
		`nodeSelector.pointsman\.dev/pool=a`:                                                              "which the chart sets by kubeProxy.replace and pools",
		`podLabels.app\.kubernetes\.io/name=a`:                                                            "by which the DaemonSet finds its pods",
		"affinity.nodeAfinity.a=b":                                                                        "nodeAfinity",
		"extraEnv[0].name=A":                                                                              "/extraEnv/0",
		"extraEnv[0].name=A,extraEnv[0].valu=b":                                                           "valu",
		"extraEnv[0].name=POINTSMAN_MODE,extraEnv[0].value=ipvs":                                          "extraEnv has POINTSMAN_MODE",
		"extraEnv[0].name=A,extraEnv[0].value=b,extraEnv[1].name=A,extraEnv[1].value=c":                   "extraEnv has A",
		"extraVolumes[0].name=state,extraVolumes[0].emptyDir.medium=Memory":                               "which is the name of another volume",
		"extraVolumes[0].name=a,extraVolumes[0].emptyDir.medium=Memory":                                   "extraVolumeMounts does not mount it",
		"extraVolumeMounts[0].name=a,extraVolumeMounts[0].mountPath=/a":                                   "extraVolumeMounts has a, and extraVolumes does not",
		"extraVolumes[0].name=a":                                                                          "/extraVolumes/0",
		added + "extraVolumeMounts[0].mountPath=/run/pointsman/":                                          "where another volume is",
		acme + "plugins[0].resources.requests.cpu=much":                                                   "/plugins/0/resources/requests/cpu",
		acme + "config.plugins.acne.options.a=b":                                                          "config has plugins.acne, and the pods have iptables, nftables, acme",
		acme + "imageVolumes=true":                                                                        "imageVolumes has an effect only on plugins with form: children",
		"form=children,imageVolumes=false":                                                                "imageVolumes has an effect only on plugins with form: children",
		acme + "form=children,plugins[0].args={-v}":                                                       "plugin acme has args, which is for a container of form: sidecar",
		acme + "extraVolumes[0].name=socket-acme,extraVolumes[0].emptyDir.medium=Memory":                  "extraVolumes has socket-acme, which is the name of another volume",
		"extraVolumes[0].name=api-server,extraVolumes[0].emptyDir.medium=Memory":                          "extraVolumes has api-server, which is the name of another volume",
		acme + "form=children,extraEnv[0].name=POINTSMAN_PLUGINS_ACME_PATH,extraEnv[0].value=/p":          "extraEnv has POINTSMAN_PLUGINS_ACME_PATH",
		acme + added + "extraVolumeMounts[0].mountPath=/run/pointsman-acme":                               "where another volume is",
		acme + added + "form=children,extraVolumeMounts[0].mountPath=/usr/libexec/pointsman-plugins/acme": "where another volume is",
		added + "extraVolumeMounts[0].mountPath=a":                                                        "/extraVolumeMounts/0/mountPath",
		"pools[0].name=a,pools[0].mode=nftables,pools[1].name=a,pools[1].mode=nftables":                   "two pools have the name a",
		"kubeProxy.replace=true,pools[0].name=a,pools[0].config.bindAddress=::1":                          "pool a has a config",
	} {
		out, err := helm(t, "template", "pointsman", folder, "--namespace", "kube-system", "--set", set)
		if err == nil || !strings.Contains(out, says) {
			t.Errorf("with %s it says %v: %s\nwant %q", set, err, out, says)
		}
	}
	if out, err := helm(t, "template", "pointsman", folder, "--kube-version", "v1.20.15"); err == nil || !strings.Contains(out, "requires kubeVersion: >=1.21.0") {
		t.Errorf("for a cluster before the APIs that the host reads it says %v: %s", err, out)
	}
	if out, err := helm(t, "template", "pointsman", folder, "--kube-version", "v1.31.4-eks-56e63d8"); err != nil {
		t.Errorf("for a cluster whose version has a suffix it says %v: %s", err, out)
	}
	if out, err := helm(t, "template", "pointsman", folder, "--namespace", "net", "--set", "kubeProxy.replace=true"); err == nil || !strings.Contains(out, "--namespace kube-system") {
		t.Errorf("in another namespace than kube-proxy's ConfigMap it says %v: %s", err, out)
	}
}

// TestChartApplies: an API server accepts what the chart renders for each way of use.
func TestChartApplies(t *testing.T) {
	rendered := make(map[string]string)
	for _, file := range ways(t) {
		rendered[file] = render(t, "--no-hooks", "--values", file)
	}
	needKubectl(t)
	kubeconfig := cluster.Start(t, cluster.Options{}).Kubeconfig(cluster.Token(cluster.Admin), "")
	apply := func(text string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), kubectl, append([]string{"--kubeconfig", kubeconfig}, args...)...)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("kubectl %q: %v: %s", args, err, out)
		}
	}
	const operator = "../beside/testdata/prometheus-operator.yaml"
	apply("", "apply", "-f", operator)
	apply("", "wait", "--for=condition=established", "--timeout=60s", "-f", operator)
	for file, text := range rendered {
		t.Log(file)
		apply(text, "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
	}
}

// An object is a Kubernetes object.
type object map[string]any

func (o object) at(path ...string) any {
	var v any = map[string]any(o)
	for _, p := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[p]
	}
	return v
}

// objects reads manifests, by kind and name.
func objects(t *testing.T, text string) map[string]object {
	t.Helper()
	all := make(map[string]object)
	for decoder := yaml.NewDecoder(strings.NewReader(text)); ; {
		var m map[string]any
		if err := decoder.Decode(&m); err != nil {
			if err.Error() != "EOF" {
				t.Fatalf("%v: %s", err, text)
			}
			return all
		}
		if o := object(m); len(o) > 0 {
			all[fmt.Sprint(o["kind"], " ", o.at("metadata", "name"))] = o
		}
	}
}

// plain removes from objects of the chart what the manifests do not have: helm's labels and annotations, the hash in a
// ConfigMap's name, and the part of a selector that excludes pools.
func plain(t *testing.T, all map[string]object) map[string]object {
	t.Helper()
	out := make(map[string]object)
	for key, o := range all {
		metadata := o["metadata"].(map[string]any)
		delete(metadata, "annotations")
		labels := metadata["labels"].(map[string]any)
		for _, label := range []string{"app.kubernetes.io/instance", "app.kubernetes.io/managed-by", "helm.sh/chart"} {
			if labels[label] == nil {
				t.Errorf("%s has no label %s", key, label)
			}
			delete(labels, label)
		}
		switch o["kind"] {
		case "DaemonSet":
			delete(o.at("spec", "selector").(map[string]any), "matchExpressions")
			delete(o.at("spec").(map[string]any), "minReadySeconds")
			for _, v := range o.at("spec", "template", "spec", "volumes").([]any) {
				if v := v.(map[string]any); v["name"] == "config" {
					v["configMap"] = map[string]any{"name": "pointsman"}
				}
			}
		case "ConfigMap":
			metadata["name"] = "pointsman"
			delete(o, "immutable")
			delete(metadata, "labels")
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Job":
			delete(metadata, "labels")
		}
		out[fmt.Sprint(o["kind"], " ", metadata["name"])] = o
	}
	return out
}

// settled normalises an object: it decodes the content of ConfigMaps, and sorts volumes and mounts.
func settled(t *testing.T, all map[string]object) map[string]object {
	t.Helper()
	for key, o := range all {
		if text, ok := o.at("data", "host.yaml").(string); ok {
			var settings any
			if err := yaml.Unmarshal([]byte(text), &settings); err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			o.at("data").(map[string]any)["host.yaml"] = settings
		}
		pod, ok := o.at("spec", "template", "spec").(map[string]any)
		if !ok {
			continue
		}
		order(pod["volumes"])
		containers, _ := pod["containers"].([]any) // a patch of kube-proxy's pods has none
		for _, c := range containers {
			order(c.(map[string]any)["volumeMounts"])
		}
	}
	return all
}

func order(list any) {
	if list, ok := list.([]any); ok {
		slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	}
}

// same reports objects that differ.
func same(t *testing.T, chart, manifests map[string]object) {
	t.Helper()
	for key, want := range manifests {
		if got := chart[key]; !reflect.DeepEqual(got, want) {
			a, _ := yaml.Marshal(got)
			b, _ := yaml.Marshal(want)
			t.Errorf("the chart has %s as\n%s\nand the manifests as\n%s", key, a, b)
		}
	}
	for key := range chart {
		if manifests[key] == nil {
			t.Errorf("the chart has %s, and the manifests do not", key)
		}
	}
}

const kubectl = "../../bin/peers/kubectl"

func needKubectl(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(kubectl); err != nil {
		t.Skip("needs kubectl: make peers builds one, in some minutes")
	}
}

// kustomize renders a folder of configs.
func kustomize(t *testing.T, folder string) string {
	t.Helper()
	needKubectl(t)
	out, err := exec.CommandContext(t.Context(), kubectl, "kustomize", folder).Output()
	if err != nil {
		t.Fatalf("kubectl kustomize %s: %v", folder, err)
	}
	return string(out)
}

// TestChartAgrees: the chart and the manifests of configs are equal for each form that both have.
func TestChartAgrees(t *testing.T) {
	for form, args := range map[string][]string{
		"kubernetes":                    {"--set", "form=children"},
		"kubernetes-sidecar":            nil,
		"kubernetes-replace-kube-proxy": {"--set", "kubeProxy.replace=true"},
	} {
		t.Run(form, func(t *testing.T) {
			manifests := settled(t, objects(t, kustomize(t, configs+form)))
			if form == "kubernetes-replace-kube-proxy" {
				delete(manifests, "DaemonSet kube-proxy") // helm prints the patch
				delete(manifests, "ConfigMap pointsman")  // nothing in it is read there
				node := manifests["DaemonSet pointsman"].at("spec", "template", "spec").(map[string]any)
				node["volumes"] = slices.DeleteFunc(node["volumes"].([]any), func(v any) bool { return v.(map[string]any)["name"] == "config" })
				c := node["containers"].([]any)[0].(map[string]any)
				c["volumeMounts"] = slices.DeleteFunc(c["volumeMounts"].([]any), func(v any) bool { return v.(map[string]any)["name"] == "config" })
			}
			same(t, settled(t, plain(t, objects(t, render(t, args...)))), manifests)
		})
	}
}

// TestChartJobs: the Job of the chart that checks a node equals that of configs.
func TestChartJobs(t *testing.T) {
	chart := plain(t, objects(t, render(t, "--set", "kubeProxy.replace=true,kubeProxy.checkNodes={worker-1}")))
	text, err := os.ReadFile(configs + "kubernetes-replace-kube-proxy/check.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const name = "Job check-worker-1"
	same(t, map[string]object{name: chart[name]}, objects(t, strings.ReplaceAll(string(text), "NODE", "worker-1")))
}

// TestChartSettings validates the settings that the chart writes with pointsman.
func TestChartSettings(t *testing.T) {
	dir := t.TempDir()
	var maps int
	for _, file := range ways(t) {
		for key, o := range objects(t, golden(t, file)) {
			text, ok := o.at("data", "host.yaml").(string)
			if !ok {
				continue
			}
			if maps++; maps == 1 {
				if err := built.Into(dir, "", "./host/pointsman"); err != nil {
					t.Fatal(err)
				}
			}
			settings := filepath.Join(dir, "host.yaml")
			if err := os.WriteFile(settings, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "pointsman"), "config", "validate", "--file-only", settings).CombinedOutput(); err != nil {
				t.Errorf("%s of %s: %v: %s\n%s", key, file, err, out, text)
			}
		}
	}
	if maps < 5 {
		t.Errorf("found only %d settings", maps)
	}
}
