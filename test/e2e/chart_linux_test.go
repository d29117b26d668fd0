// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const chart = "charts/pointsman"

// TestChart installs the chart with helm in a real API server, whose controllers make what the
// test's kubelets run.
func TestChart(t *testing.T) {
	need(t)
	needHelm(t)
	newChart(t).upgrade()
}

// needHelm skips where helm is not built. CI builds it.
func needHelm(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("../../bin/helm"); err != nil {
		t.Skip("needs helm: make bin/helm builds it, in some minutes")
	}
}

// newChart makes a cluster of three nodes that never had a kube-proxy.
func newChart(t *testing.T) *move {
	t.Helper()
	v := &move{world: newWorld(t, modes()[0])}
	v.nodes = append(v.nodes, v.newNode(2))
	v.kubectl("delete", "-k", "../../configs/kubernetes")
	v.asAdministrator()
	v.withHelm()
	v.api.StartControllers("daemonset-controller", "job-controller", "garbage-collector-controller")
	v.join()
	return v
}

// withHelm has the shell find helm, which keeps what it has in a folder of the test's.
func (v *move) withHelm() {
	v.Helper()
	home := v.TempDir()
	bin, err := filepath.Abs("../../bin")
	if err != nil {
		v.Fatal(err)
	}
	v.shell = append(v.shell, "PATH="+bin+":"+bin+"/peers:"+os.Getenv("PATH"), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
}

// upgrade goes from the chart as it was first, which has one container, to the one that is and to another mode for
// all nodes, changes the mode by one value, and goes back. Calls go on all the time, and what is kept on the nodes
// stays.
func (v *move) upgrade() {
	values := filepath.Join(v.TempDir(), "values.yaml")
	text := `clusterCIDRs: [10.244.0.0/16, "fd00:10:244::/48"]
apiServer: {host: 127.0.0.1, port: 6443}
nodeSelector: {}
config:
  linux: {conntrack: {maxPerCore: 0, tcpCloseWaitTimeout: 0s, tcpEstablishedTimeout: 0s}}
updateStrategy: {rollingUpdate: {maxUnavailable: 1}}
`
	if err := os.WriteFile(values, []byte(text), 0o644); err != nil {
		v.Fatal(err)
	}
	s := v.service("web")
	v.endpoints("web", v.nodes[1].end(0))
	from := v.nodes[0].pods[0]
	at := at(s, 0, 80)
	// What the API server would refuse of any way of use, it refuses here.
	ways, err := filepath.Glob("../chart/testdata/*.values.yaml")
	if err != nil || len(ways) == 0 {
		v.Fatal(err)
	}
	operator := "testdata/prometheus-operator.yaml"
	v.kubectl("apply", "-f", operator)
	v.kubectl("wait", "--for=condition=established", "--timeout=60s", "-f", operator)
	for _, way := range ways {
		v.must("helm template pointsman " + chart + " -n kube-system --no-hooks -f test/chart/testdata/" + filepath.Base(way) +
			" | kubectl apply --server-side --dry-run=server --validate=strict -f -")
	}

	v.must("helm install pointsman test/chart/testdata/earlier -n kube-system -f " + values)
	v.serves("pointsman", "iptables")
	v.expect(from, "tcp4", at, saw(v.nodes[1].pods[0], backend, from.addrs[0]))
	var loads []*load
	for _, n := range v.nodes {
		loads = append(loads, v.calledAllTheTime(n.pods[0], at))
	}
	before := v.daemon("pointsman").UID
	kept := v.kept()

	v.must("helm upgrade pointsman "+chart+" -n kube-system -f "+values+" --set mode=nftables",
		"kubectl -n kube-system rollout status daemonset/pointsman --timeout=4m")
	v.serves("pointsman", "nftables")
	if after := v.daemon("pointsman").UID; after != before {
		v.Error("the upgrade made another DaemonSet")
	}
	if now := v.kept(); len(now) < len(kept) || len(kept) == 0 {
		v.Errorf("the upgrade left %q of what was kept on the nodes: %q", now, kept)
	}
	maps, err := v.kube.CoreV1().ConfigMaps("kube-system").List(v.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=pointsman"})
	if err != nil || len(maps.Items) != 2 {
		v.Errorf("there are %d ConfigMaps, %v; want that of the version before, too", len(maps.Items), err)
	}

	v.must("helm upgrade pointsman "+chart+" -n kube-system --reuse-values --set mode=iptables",
		"kubectl -n kube-system rollout status daemonset/pointsman --timeout=4m")
	v.serves("pointsman", "iptables")

	v.must("helm rollback pointsman 1 -n kube-system", "kubectl -n kube-system rollout status daemonset/pointsman --timeout=4m")
	v.serves("pointsman", "iptables")
	v.endpoints("web", v.nodes[1].end(1))
	v.expect(from, "tcp4", at, saw(v.nodes[1].pods[1], backend, from.addrs[0]))
	for _, l := range loads {
		v.result(l)
	}
	v.logs()
}

// serves waits until a mode serves all nodes, in pods of a DaemonSet.
func (v *move) serves(name, mode string) {
	v.Helper()
	v.until(mode+" serves", func() error {
		pods := v.pods()
		for _, n := range v.nodes {
			if pods[n.name+" "+name] == "" {
				return fmt.Errorf("there are %v", pods)
			}
			_, text, err := v.lands[0].fetch(n.place, "http://127.0.0.1:10249/metrics")
			if err != nil {
				return err
			}
			for _, line := range []string{`pointsman_plugin_active{plugin="` + mode + `"} 1`, "pointsman_ready 1"} {
				if !strings.Contains(string(text), line+"\n") {
					return fmt.Errorf("%s does not say %s", n.name, line)
				}
			}
		}
		return nil
	})
}

// kept lists what is in the folders of the nodes that outlive pods, save for the socket of a host in one container.
func (v *move) kept() (all []string) {
	v.Helper()
	for _, k := range v.kubelets {
		for _, pattern := range []string{"run/pointsman/*", "var/lib/pointsman/*"} {
			found, err := filepath.Glob(filepath.Join(k.root, pattern))
			if err != nil {
				v.Fatal(err)
			}
			all = append(all, slices.DeleteFunc(found, func(at string) bool { return filepath.Ext(at) == ".sock" })...)
		}
	}
	return all
}
