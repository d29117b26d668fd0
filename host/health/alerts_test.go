// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/sdk"
)

// TestAlertsStayQuiet evaluates the usual alerts of a cluster, and ours, with promtool over the metrics of a node, with
// the labels that the PodMonitor adds. configs/monitoring/alerts_test.yaml tests when our alerts fire.
func TestAlertsStayQuiet(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("needs promtool: apt-get install prometheus")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	up := "up{" + target(t) + "}"
	for name, tc := range map[string]struct {
		series map[string]string
		firing []string
	}{
		"healthy": {scraped(t), nil},
		"down":    {map[string]string{up: "0x40"}, []string{"KubeProxyDown", "KubeProxyInstanceUnreachable", "TargetDown"}},
	} {
		t.Run(name, func(t *testing.T) {
			text := fmt.Sprintf("rule_files: [%[1]s/testdata/kubernetes-rules.yaml, %[1]s/../../configs/monitoring/alerts.yaml]\ntests:\n- interval: 1m\n  input_series:\n", here)
			text += "  - {series: 'kubernetes_build_info{job=\"apiserver\", git_version=\"v1.37.2\"}', values: 1x40}\n"
			for _, series := range slices.Sorted(maps.Keys(tc.series)) {
				text += fmt.Sprintf("  - {series: '%s', values: %s}\n", series, tc.series[series])
			}
			text += "  promql_expr_test:\n  - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n    eval_time: 30m\n    exp_samples:\n"
			for _, alert := range tc.firing {
				text += fmt.Sprintf("    - {labels: '{alertname=%q}', value: 1}\n", alert)
			}
			file := filepath.Join(t.TempDir(), "test.yaml")
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// scraped returns the metrics of a healthy node as series that do not change.
func scraped(t *testing.T) map[string]string {
	t.Helper()
	b := newHarness()
	b.setDataplane(func(p *Dataplane) {
		p.Name, p.Writer, p.Memory = "nftables", true, 64<<20
		p.Report.Samples = []sdk.Sample{{Name: "pointsman_nftables_connections_total", Labels: map[string]string{"endpoint": "10.1.0.1:80"}, Value: 1}}
	})
	b.tracker.SetService(service("web", 0))
	b.tracker.SetSlice(slice("web", "10.1.0.1"))
	b.Applied(Applied{Families: []sdk.Family{sdk.IPv4, sdk.IPv6}, Full: true, Took: 3 * time.Millisecond, Triggers: []time.Time{b.now}})
	b.Requested("GET", "10.0.0.1:6443", "200", 30*time.Millisecond)
	if codes := b.codes(); codes != "200 200 200" {
		t.Fatalf("the node is not healthy: %s", codes)
	}
	labels := target(t)
	all := map[string]string{"up{" + labels + "}": "1x40"}
	for line := range strings.Lines(ask(b.Endpoints(), "GET", "/metrics", "").Body.String()) {
		series, value, _ := strings.Cut(strings.TrimSpace(strings.Replace(line, "} ", ",\x00", 1)), "\x00")
		if value == "" {
			series, value, _ = strings.Cut(strings.TrimSpace(line), " ")
			series += "{"
		}
		v, err := strconv.ParseFloat(value, 64)
		if strings.HasPrefix(line, "#") || err != nil {
			continue
		}
		for _, label := range strings.Split(labels, ",") { // Prometheus renames labels that both the series and its target have
			if name, _, _ := strings.Cut(label, "="); strings.Contains(series, "{"+name+"=") || strings.Contains(series, ","+name+"=") {
				t.Errorf("%s: its target has the label %s too", series, name)
			}
		}
		all[series+labels+"}"] = strconv.FormatFloat(v, 'f', -1, 64) + "x40"
	}
	if len(all) < 100 {
		t.Fatalf("scraped only %d series", len(all))
	}
	return all
}

// target returns the labels of a pod on node a, as the operator makes them by the PodMonitor.
func target(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../configs/kubernetes-monitoring/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		Spec struct {
			PodMetricsEndpoints []struct{ Relabelings []map[string]any } `yaml:"podMetricsEndpoints"`
		}
	}
	if err := yaml.Unmarshal(text, &monitor); err != nil || len(monitor.Spec.PodMetricsEndpoints) != 1 {
		t.Fatalf("want one endpoint: %v: %s", err, text)
	}
	of := map[string]string{
		"namespace": "kube-system", "pod": "pointsman-x", "container": "pointsman", "job": "kube-system/pointsman",
		"instance": "192.0.2.1:10249", "endpoint": "metrics",
	}
	for _, r := range monitor.Spec.PodMetricsEndpoints[0].Relabelings {
		switch {
		case r["action"] == "labeldrop":
			delete(of, fmt.Sprint(r["regex"]))
		case r["sourceLabels"] == nil:
			of[fmt.Sprint(r["targetLabel"])] = fmt.Sprint(r["replacement"])
		case fmt.Sprint(r["sourceLabels"]) == "[__meta_kubernetes_pod_node_name]":
			of[fmt.Sprint(r["targetLabel"])] = "a"
		}
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		labels = append(labels, fmt.Sprintf("%s=%q", name, of[name]))
	}
	return strings.Join(labels, ",")
}
