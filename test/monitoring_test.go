// SPDX-License-Identifier: Apache-2.0

package test

import (
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestMonitored looks for every metric of the alerts and the dashboard in docs/metrics.md, which lists all that are
// served.
func TestMonitored(t *testing.T) {
	documented := read(t, "../docs/metrics.md")
	name := regexp.MustCompile(`\b(?:kubeproxy|pointsman|rest_client|kubernetes)_[a-z0-9_]+`)
	for _, file := range []string{"../configs/monitoring/alerts.yaml", "../configs/monitoring/dashboard.json"} {
		used := name.FindAllString(read(t, file), -1)
		if len(used) < 5 {
			t.Errorf("%s uses only %q", file, used)
		}
		for _, metric := range used {
			if !strings.Contains(documented, "`"+strings.TrimSuffix(metric, "_bucket")+"`") {
				t.Errorf("%s uses %s, which docs/metrics.md does not have", file, metric)
			}
		}
	}
}

// TestAlertsOfOperator compares the alerts of the PrometheusRule with configs/monitoring/alerts.yaml.
func TestAlertsOfOperator(t *testing.T) {
	var rule struct{ Spec any }
	var alerts any
	for file, into := range map[string]any{"../configs/kubernetes-monitoring/prometheusrule.yaml": &rule, "../configs/monitoring/alerts.yaml": &alerts} {
		if err := yaml.Unmarshal([]byte(read(t, file)), into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	if alerts == nil || !reflect.DeepEqual(rule.Spec, alerts) {
		t.Error("the spec of configs/kubernetes-monitoring/prometheusrule.yaml is not configs/monitoring/alerts.yaml")
	}
}

// TestRunbooks: the runbook of each alert is a heading of the reference.
func TestRunbooks(t *testing.T) {
	text := read(t, "../configs/monitoring/alerts.yaml")
	runbooks := regexp.MustCompile(`runbook_url: https://github.com/pointsman/pointsman/blob/main/docs/((?:warnings|metrics)\.md)#(\S+)\n`).FindAllStringSubmatch(text, -1)
	if n := strings.Count(text, "alert: "); n < 10 || n != len(runbooks) {
		t.Errorf("%d alerts have %d runbooks", n, len(runbooks))
	}
	for _, m := range runbooks {
		if !slices.Contains(anchors(read(t, "../docs/"+m[1])), m[2]) {
			t.Errorf("a runbook is the heading %q of %s, which is not there", m[2], m[1])
		}
	}
}

// TestAlerts checks the alerts with promtool and runs their tests.
func TestAlerts(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		t.Skip("needs promtool: apt-get install prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		cmd := exec.CommandContext(t.Context(), "promtool", args...)
		cmd.Dir = "../configs/monitoring"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
}
