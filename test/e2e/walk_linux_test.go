// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/cluster"
)

// TestKernelIPVSKubeadm moves a node from kube-proxy's ipvs mode, where the kernel has IPVS, and
// back: to iptables as docs/install.md says, and to ours, which takes over in place.
func TestKernelIPVSKubeadm(t *testing.T) {
	need(t)
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err != nil {
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
	legacyTools(t)
	const back = "And back to kube-proxy in ipvs mode"
	newMove(t, "ipvs").play(
		route{other: "From kube-proxy in ipvs mode", served: (*move).withoutIPVS, back: back},
		route{served: (*move).inPlace, back: back},
	)
}

// legacyTools has every program that is begun find the legacy backend of iptables, where the kernel
// has that: user-mode Linux has no other.
func legacyTools(t *testing.T) {
	t.Helper()
	if _, err := os.Stat("/proc/net/ip_tables_names"); err != nil {
		return
	}
	dir := t.TempDir()
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, does := range []string{"", "-save", "-restore"} {
			legacy, err := exec.LookPath(family + "-legacy" + does)
			if err == nil {
				err = os.Symlink(legacy, filepath.Join(dir, family+does))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
}

// inPlace wants what kube-proxy made for the Service to be there, of our mode now.
func (v *move) inPlace() {
	v.Helper()
	if there := v.virtual(); !strings.Contains(there, "10.96.") {
		v.Errorf("where mode ipvs took over, IPVS has\n%s", there)
	}
}

// withoutIPVS wants nothing left of what kube-proxy made.
func (v *move) withoutIPVS() {
	v.Helper()
	m := v.nodes[0].machines[0]
	if left := v.virtual() + v.run(m, "ipset", "list", "-name"); strings.Contains(left, "10.96.") || strings.Contains(left, "KUBE-") || strings.Contains(left, "PM-") {
		v.Errorf("after the cleanup of docs/install.md there is\n%s", left)
	}
	if links := v.run(m, "ip", "link"); strings.Contains(links, "kube-ipvs0") {
		v.Errorf("after the cleanup of docs/install.md there is\n%s", links)
	}
	v.toItsMode()
}

// toItsMode goes back to the mode that the ConfigMap says, as docs/install.md tells to.
func (v *move) toItsMode() {
	v.Helper()
	const command = "kubectl -n kube-system set env daemonset/pointsman POINTSMAN_MODE-"
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil || !strings.Contains(string(text), "`"+command+"`") {
		v.Fatalf("docs/install.md does not say %q, %v", command, err)
	}
	v.must(command, "kubectl -n kube-system rollout status daemonset/pointsman --timeout=2m")
	v.until("mode ipvs serves again", func() error {
		said := v.said()
		if now := said[strings.LastIndex(said, "host begins"):]; !strings.Contains(now, " swap done: object=ipvs ") {
			return fmt.Errorf("it says %s", now)
		}
		return nil
	})
	v.inPlace()
}

// virtual are the node's virtual services.
func (v *move) virtual() string {
	v.Helper()
	return v.run(v.nodes[0].machines[0], "ipvsadm", "-Sn")
}

// foreseen asks what the move would change, as docs/install.md tells to before anything is
// touched: a node as kubeadm sets it up loses nothing.
func (v *move) foreseen() {
	v.Helper()
	m := v.nodes[0].machines[0]
	cmd := exec.CommandContext(v.Context(), filepath.Join(binaries, "pointsman"), "plan", "--from-kube-proxy", "-o=json", "--plugin-dir="+binaries)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "POINTSMAN_") }) // of tests
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := m.net.Do(cmd.Run)
	var plan admin.MovePlan
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2) || json.Unmarshal(out.Bytes(), &plan) != nil {
		v.Fatalf("plan: %v: %s%s", err, &out, &complaints)
	}
	v.Logf("plan says %s", &out)
	if plan.PID == 0 || plan.From != v.from || plan.To != v.from || plan.Back == "" {
		v.Errorf("before the move from mode %s plan says %+v", v.from, plan)
	}
	if v.from == "ipvs" && len(plan.Left) > 0 {
		v.Errorf("mode ipvs takes over in place, and plan says left over is %q", plan.Left)
	}
}

// A watch is Prometheus with the usual alerts of a cluster and ours. It scrapes the node's proxy
// and the API server.
type watch struct{ *move }

const watchAt = "127.0.0.1:19090"

// prometheus begins a watch, which ends with the test.
func (v *move) prometheus() watch {
	v.Helper()
	pace := "2s"
	if cluster.IsAttached() {
		pace = "15s" // a guest has other things to do
	}
	dir := v.shortDir()
	var rules []string
	for _, file := range []string{"../../host/health/testdata/kubernetes-rules.yaml", "../../configs/monitoring/alerts.yaml"} {
		path, err := filepath.Abs(file)
		if err != nil {
			v.Fatal(err)
		}
		rules = append(rules, path)
	}
	m := v.nodes[0].machines[0]
	// The labels are those of kube-prometheus.
	text := fmt.Sprintf(`global: {scrape_interval: %s, evaluation_interval: %[1]s}
rule_files: [%s]
scrape_configs:
- job_name: kube-proxy
  static_configs:
  - targets: ["127.0.0.1:10249"]
    labels: {namespace: kube-system, k8s_app: kube-proxy}
- job_name: apiserver
  scheme: https
  tls_config: {insecure_skip_verify: true}
  authorization: {credentials: %s}
  static_configs:
  - targets: ["127.0.0.1:6443"]
`, pace, strings.Join(rules, ", "), cluster.Token(cluster.Admin))
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		v.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		v.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("prometheus", "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+watchAt, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	ended := v.begin(m, cmd)
	v.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
		if text, err := os.ReadFile(log.Name()); v.Failed() {
			v.Logf("Prometheus says %s, %v", text, err)
		}
	})
	return watch{v}
}

// quiet waits until the proxy and the API server are scraped, the proxy has the metric, and no
// alert fires or is about to.
func (w watch) quiet(metric string) {
	w.Helper()
	w.until("with "+metric+" no alert is pending", func() error {
		for _, expr := range []string{`up{job="kube-proxy"} == 1`, `up{job="apiserver"} == 1`, metric + `{job="kube-proxy"}`, `kubernetes_build_info{job="apiserver"}`} {
			found, err := w.ask(expr)
			if err == nil && len(found) == 0 {
				err = fmt.Errorf("%s is not so", expr)
			}
			if err != nil {
				return err
			}
		}
		alerts, err := w.ask("ALERTS")
		if err == nil && len(alerts) > 0 {
			err = fmt.Errorf("there are %v", alerts)
		}
		return err
	})
}

// ask returns the labels of what an expression finds.
func (w watch) ask(expr string) (found []map[string]string, err error) {
	node := w.nodes[0]
	_, body, err := node.machines[0].land.fetch(node.place, "http://"+watchAt+"/api/v1/query?query="+url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	var answer struct {
		Status string
		Data   struct {
			Result []struct{ Metric map[string]string }
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Status != "success" {
		return nil, fmt.Errorf("Prometheus answers %s, %w", body, err)
	}
	for _, r := range answer.Data.Result {
		found = append(found, r.Metric)
	}
	return found, nil
}
