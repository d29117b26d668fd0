// SPDX-License-Identifier: Apache-2.0

package test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/built"
)

// TestVerbs runs every verb beside a healthy host.
func TestVerbs(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	s.until("all is well", func() error {
		_, err := s.Status(t.Context())
		return err
	})
	for _, tc := range []struct {
		words string
		code  int
		says  string // on stdout, or on stderr if code is not 0
	}{
		{"status --until-well 5s", 0, "all        is well"},
		{"diff", 0, "nothing differs"},
		{"status", 0, "1 Service, 1 EndpointSlice, 1 endpoint"},
		{"config validate", 0, "host.yaml is good"},
		{"config validate host.yaml", 0, "host.yaml is good"},
		{"config validate nowhere.yaml", 1, "nowhere.yaml"},
		{"config show", 0, "mode: userspace"},
		{"config show --running", 0, "mode: userspace"},
		{"config show --mode ipvs", 0, "mode: ipvs"},
		{"config defaults", 0, "minSyncPeriod: 1s"},
		{"plugin list", 0, "userspace  serving"},
		{"plugin info userspace", 0, "serves"},
		{"plugin info nobody", 1, "pointsman plugin list"},
		{"plugin check userspace", 0, "this node can run userspace"},
		{"plugin logs userspace", 0, ""},
		{"plugin logs nobody", 1, "pointsman plugin list"},
		{"plugin restart nobody", 1, "nobody"},
		{"plugin restart usrspace", 1, "there is userspace; try: pointsman plugin list"},
		{"plugin logs usrspace", 1, "there is userspace; try: pointsman plugin list"},
		{"version", 0, "pointsman "},
		{"completion bash", 0, "bash completion"},
		{"help", 0, "status"},
		{"help status", 0, "--wait"},
		{"", 0, "Available Commands"},
		{"config", 0, "validate"},
		{"plugin", 0, "restart"},

		{"satus", 64, "did you mean status?"},
		{"plugin lits", 64, "did you mean list or logs?"},
		{"status now", 64, "--help"},
		{"status --wiat 5s", 64, "unknown flag"},
		{"status --until-well soon", 64, "--until-well"},
		{"status -o xml", 64, "table, json or yaml"},
		{"plugin info", 64, "accepts 1 arg"},
		{"config validate a b", 64, "--help"},
		{"run here", 64, "--help"},
		{"cleanup everything", 64, "--help"},
		{"version --long", 64, "unknown flag"},
	} {
		got := s.verb(strings.Fields(tc.words)...)
		text := got.out
		if tc.code != 0 {
			text = got.err
		}
		if got.code != tc.code || !strings.Contains(text, tc.says) {
			t.Errorf("pointsman %s exits %d, want %d with %q, and says\n%s%s", tc.words, got.code, tc.code, tc.says, got.out, got.err)
		}
		if tc.code == 0 && got.err != "" && !strings.Contains(tc.words, "--until-well") { // which prints its progress to stderr
			t.Errorf("pointsman %s prints on stderr %s", tc.words, got.err)
		}
		if tc.code == 64 && got.out != "" {
			t.Errorf("pointsman %s prints on stdout %s", tc.words, got.out)
		}
	}
}

// TestFormats decodes the JSON and YAML of verbs.
func TestFormats(t *testing.T) {
	t.Parallel()
	s := servingSystem(t)
	for verb, kind := range map[string]string{
		"status":                    "Status",
		"plugin list":               "PluginList",
		"service list":              "ServiceList",
		"service show ns/web":       "ServiceDetail",
		"explain node 192.0.2.1:80": "Explanation",
		"events":                    "EventList",
		"plugin info userspace":     "Plugin",
		"diff":                      "Diff",
		"config show":               "HostConfig",
		"config show --running":     "Config",
		"version":                   "Version",
	} {
		var meta [2]struct {
			APIVersion string `json:"apiVersion" yaml:"apiVersion"`
			Kind       string `json:"kind" yaml:"kind"`
		}
		asJSON := s.verb(append(strings.Fields(verb), "-o", "json")...)
		if err := json.Unmarshal([]byte(asJSON.out), &meta[0]); err != nil || asJSON.code != 0 {
			t.Errorf("%s -o json: %v, %+v", verb, err, asJSON)
		}
		asYAML := s.verb(append(strings.Fields(verb), "--output=yaml")...)
		if err := yaml.Unmarshal([]byte(asYAML.out), &meta[1]); err != nil || asYAML.code != 0 {
			t.Errorf("%s -o yaml: %v, %+v", verb, err, asYAML)
		}
		for _, m := range meta {
			if m.Kind != kind || !strings.HasPrefix(m.APIVersion, "pointsman.dev/v1") {
				t.Errorf("%s is a %s of %s, want %s", verb, m.Kind, m.APIVersion, kind)
			}
		}
	}
	var st admin.Status
	if err := json.Unmarshal([]byte(s.verb("status", "-o", "json").out), &st); err != nil {
		t.Fatal(err)
	}
	if !st.Healthy || st.Mode != "userspace" || st.Dataplane.Role != "active" || st.Services.Services != 1 || st.Host.PID != s.cmd.Process.Pid {
		t.Errorf("status is %+v", st)
	}
	if st.Warnings == nil || st.Unserved == nil || st.Config.Pending == nil {
		t.Errorf("empty lists are null: %+v", st)
	}
}

// TestNoHost runs verbs without a host.
func TestNoHost(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	for words, code := range map[string]int{
		"status":                    3,
		"service list":              3,
		"service show ns/web":       3,
		"explain node 192.0.2.1:80": 3,
		"doctor":                    1,
		"events":                    3,
		"status --until-well 200ms": 3,
		"config show --running":     3,
		"plugin logs userspace":     3,
		"plugin restart userspace":  3,
		"plugin list":               0,
		"plugin info userspace":     0,
		"plugin info nobody":        1,
		"cleanup --dry-run":         0,
		"config show":               0,
		"version":                   0,
		"status -o json":            3,
	} {
		if got := s.verb(strings.Fields(words)...); got.code != code || code == 3 && !strings.Contains(got.err, "pointsman run") {
			t.Errorf("pointsman %s exits %d, want %d, and says\n%s%s", words, got.code, code, got.out, got.err)
		}
	}
	got := s.verb("plugin", "info", "userspace")
	if !strings.Contains(got.out, "udp") || !strings.Contains(got.out, "dies-with-process") {
		t.Errorf("plugin info does not print features and limits:\n%s", got.out)
	}
}

// TestWait: status --wait returns once a host that was just started is healthy.
func TestWait(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	waited := make(chan output, 1)
	go func() { waited <- s.verb("status", "--wait", "2m") }()
	s.start()
	if got := <-waited; got.code != 0 || !strings.Contains(got.out, "is well") {
		t.Errorf("status --wait says %+v", got)
	}
}

// TestFollowLogs follows the plugin's log over a restart of the plugin, until it is interrupted.
func TestFollowLogs(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.plugins = s.path("plugins")
	err := errors.Join(
		built.Into(s.plugins, "", "./sdk/examples/printer"),
		os.Rename(filepath.Join(s.plugins, "printer"), filepath.Join(s.plugins, "pointsman-dataplane-printer")))
	if err != nil {
		t.Fatal(err)
	}
	s.config("")
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start("--mode", "printer")
	s.serving()
	v := s.follows("plugin", "logs", "-f", "printer")
	v.prints("1 Services")
	if got := s.verb("plugin", "restart", "printer"); got.code != 0 {
		t.Fatalf("plugin restart says %+v", got)
	}
	v.prints("1 Services")
	v.stop()
}
