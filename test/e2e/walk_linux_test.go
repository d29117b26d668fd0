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

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/cluster"
)

// foreseen asks what the move would change, as docs/install.md tells to before anything is
// touched: a node as kubeadm sets it up loses nothing.
func (v *move) foreseen() {
	v.Helper()
	m := v.nodes[0].machines[0]
	cmd := exec.CommandContext(v.Context(), filepath.Join(binaries, "pointsman"), "plan", "--from-kube-proxy", "-o=json", "--plugin-dir="+binaries, "--kubeconfig="+v.api.Kubeconfig(cluster.Token(cluster.Admin), "https://127.0.0.1:6443"))
	cmd.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "POINTSMAN_") }) // of tests
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := m.net.Do(cmd.Run)
	var plan admin.MovePlan
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 2) || json.Unmarshal(out.Bytes(), &plan) != nil {
		v.Fatalf("plan: %v: %s%s", err, &out, &complaints)
	}
	v.Logf("plan says %s", &out)
	if plan.PID == 0 || plan.From != v.from || plan.To != v.from || plan.Services < 2 || len(plan.Differs)+len(plan.Refused) > 0 {
		v.Errorf("before the move from mode %s plan says %+v", v.from, plan)
	}
}

// A watch is Prometheus with the usual alerts of a cluster and ours. It scrapes the node's proxy
// and the API server.
type watch struct{ *move }

const watchAt = "127.0.0.1:19090"

// prometheus begins a watch, which ends with the test.
func (v *move) prometheus() watch {
	v.Helper()
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
	text := fmt.Sprintf(`global: {scrape_interval: 2s, evaluation_interval: 2s}
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
`, strings.Join(rules, ", "), cluster.Token(cluster.Admin))
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
