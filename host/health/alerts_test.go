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

// An alertTest is a test file for promtool test rules: series, and the alerts that they fire.
type alertTest struct {
	Interval string
	Series   []promSeries `yaml:"input_series"`
	Exprs    []promExpr   `yaml:"promql_expr_test"`
}

type promSeries struct{ Series, Values string }

type promExpr struct {
	Expr    string
	Time    string       `yaml:"eval_time"`
	Samples []promSample `yaml:"exp_samples"`
}

type promSample struct {
	Labels string
	Value  int
}

// TestAlertsStayQuiet evaluates the usual alerts of a cluster, and ours, with promtool over the metrics of a node, with
// the labels that the PodMonitor adds. Each case adds series or replaces some.
func TestAlertsStayQuiet(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("needs promtool: apt-get install prometheus")
	}
	up := "up" + target(t).String()
	healthy := append(scraped(t), promSeries{up, "1x40"})
	apiserver := promSeries{`kubernetes_build_info{job="apiserver", git_version="v1.37.2"}`, "1x40"}
	warning := func(code string) promSeries {
		return promSeries{target(t).join(t, fmt.Sprintf("pointsman_warnings{code=%q", code)), "1x40"}
	}
	for name, tc := range map[string]struct {
		series []promSeries
		firing []string
	}{
		"healthy": {healthy, nil},
		"down":    {[]promSeries{{up, "0x40"}}, []string{"KubeProxyDown", "KubeProxyInstanceUnreachable", "TargetDown"}},
		"another version": {slices.Concat(healthy, []promSeries{{`kubernetes_build_info{job="kubelet", git_version="v1.36.0"}`, "1x40"}}),
			[]string{"KubeVersionMismatch"}},
		"errors": {slices.Concat(healthy, []promSeries{{`rest_client_requests_total{job="kube-proxy", code="500"}`, "0+1x40"}}),
			[]string{"KubeClientErrors"}},
		"undone":  {[]promSeries{{up, "1x40"}, warning("W009")}, []string{"PointsmanSwapUndone"}},
		"unknown": {[]promSeries{{up, "1x40"}, warning(NoNode)}, []string{"PointsmanNodeUnknown"}},
		"drops":   {[]promSeries{{up, "1x40"}, warning(Degraded)}, []string{"PointsmanForwardDrops"}},
		"late":    {[]promSeries{{up, "1x40"}, {"pointsman_healthy" + target(t).String(), "0x40"}}, []string{"PointsmanBehind"}},
	} {
		t.Run(name, func(t *testing.T) { promtool(t, append(slices.Clone(tc.series), apiserver), tc.firing) })
	}
}

// promtool checks that series fire exactly the alerts in firing.
func promtool(t *testing.T, series []promSeries, firing []string) {
	t.Helper()
	want := promExpr{Expr: `count by (alertname) (ALERTS{alertstate="firing"})`, Time: "30m"}
	for _, alert := range firing {
		want.Samples = append(want.Samples, promSample{fmt.Sprintf("{alertname=%q}", alert), 1})
	}
	var rules []string
	for _, file := range []string{"testdata/kubernetes-rules.yaml", "../../configs/monitoring/alerts.yaml"} {
		path, err := filepath.Abs(file)
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, path)
	}
	text, err := yaml.Marshal(map[string]any{
		"rule_files": rules,
		"tests":      []alertTest{{"1m", series, []promExpr{want}}},
	})
	file := filepath.Join(t.TempDir(), "test.yaml")
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), "promtool", "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// scraped returns the metrics of a healthy node as series that do not change.
func scraped(t *testing.T) (all []promSeries) {
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
	for line := range strings.Lines(ask(b.Endpoints(), "GET", "/metrics", "").Body.String()) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && name[0] != '#' {
			all = append(all, promSeries{labels.join(t, name), constant(t, value)})
		} else if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			all = append(all, promSeries{name + labels.String(), constant(t, value)})
		}
	}
	if len(all) < 100 {
		t.Fatalf("scraped only %d series", len(all))
	}
	return all
}

// constant returns a series with the same value at each scrape.
func constant(t *testing.T, value string) string {
	t.Helper()
	v, err := strconv.ParseFloat(value, 64)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.FormatFloat(v, 'f', -1, 64) + "x40"
}

// targetLabels are the labels that Prometheus adds to each series of a target.
type targetLabels map[string]string

func (l targetLabels) String() string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		all = append(all, fmt.Sprintf("%s=%q", name, l[name]))
	}
	return "{" + strings.Join(all, ",") + "}"
}

// join adds l to a series with labels, whose last brace is missing. Prometheus renames labels that both the series and
// its target have.
func (l targetLabels) join(t *testing.T, series string) string {
	t.Helper()
	for name := range l {
		if strings.Contains(series, "{"+name+"=") || strings.Contains(series, ","+name+"=") {
			t.Errorf("%s}: its target has the label %s too", series, name)
		}
	}
	return series + "," + strings.TrimPrefix(l.String(), "{")
}

// target returns the labels of a pod on node a, as the operator makes them by the PodMonitor.
func target(t *testing.T) targetLabels {
	t.Helper()
	text, err := os.ReadFile("../../configs/kubernetes-monitoring/podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var monitor struct {
		Spec struct {
			PodMetricsEndpoints []struct {
				Port        string
				Relabelings []struct {
					Action, Regex, Replacement string
					SourceLabels               []string `yaml:"sourceLabels"`
					TargetLabel                string   `yaml:"targetLabel"`
				}
			} `yaml:"podMetricsEndpoints"`
		}
	}
	if err := yaml.Unmarshal(text, &monitor); err != nil || len(monitor.Spec.PodMetricsEndpoints) != 1 {
		t.Fatalf("want one endpoint: %v: %s", err, text)
	}
	endpoint := monitor.Spec.PodMetricsEndpoints[0]
	of := targetLabels{
		"namespace": "kube-system", "pod": "pointsman-x", "container": "pointsman", "job": "kube-system/pointsman",
		"instance": "192.0.2.1:10249", "endpoint": endpoint.Port,
	}
	found := map[string]string{"__meta_kubernetes_pod_node_name": "a"}
	for _, r := range endpoint.Relabelings {
		switch {
		case r.Action == "labeldrop":
			delete(of, r.Regex)
		case len(r.SourceLabels) == 1:
			of[r.TargetLabel] = found[r.SourceLabels[0]]
		default:
			of[r.TargetLabel] = r.Replacement
		}
	}
	return of
}
