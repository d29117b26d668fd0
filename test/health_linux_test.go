// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
)

// expectAnswer waits until the host's answer, "CODE BODY", contains all of want.
func (s *system) expectAnswer(port int, path string, want ...string) {
	s.t.Helper()
	s.until(path+" is answered", func() error {
		answer, err := http.Get(fmt.Sprintf("http://%s1:%d/%s", s.net, port, path))
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		got := fmt.Sprintf("%d %s", answer.StatusCode, body)
		for _, w := range want {
			if err == nil && !strings.Contains(got, w) {
				err = fmt.Errorf("%s\ndoes not have %q", got, w)
			}
		}
		return err
	})
}

// TestProbesAndMetrics reads probes and metrics before and after the plugin is killed.
func TestProbesAndMetrics(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.write("host.yaml", strings.NewReplacer(
		`healthzBindAddress: ""`, "healthzBindAddress: "+s.net+"1:10256",
		`metricsBindAddress: ""`, "metricsBindAddress: "+s.net+"1:10249",
	).Replace(s.text("")))
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.served(s.net + "10:18080")
	for _, probe := range []string{"healthz", "livez", "readyz"} {
		s.expectAnswer(10256, probe, "200 ", `"healthy":true`)
	}
	s.expectAnswer(10249, "proxyMode", "200 userspace")
	s.expectAnswer(10249, "metrics",
		"\npointsman_services 1\n",
		"\npointsman_ready 1\n",
		"\npointsman_plugin_active{plugin=\"userspace\"} 1\n",
		"\nkubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family=\"IPv4\"} 1\n",
		"\nkubeproxy_sync_proxy_rules_service_changes_pending 0\n",
		"\npointsman_userspace_connections_total ") // the dataplane's own
	pid := s.plugin()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	backend(t, at(s.net+"102"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.102"))
	s.expectAnswer(10249, "metrics", "\npointsman_plugin_restarts_total{plugin=\"userspace\"} 1\n", "\npointsman_warnings{code=\"W002\"} 1\n")
	s.until("a warning and an event report the killed plugin", func() error { return errors.Join(s.warning("W002", "signal"), s.event("PluginDown", "signal")) })
	s.served(s.net+"10:18080", at(s.net+"102"))
	if now := s.plugin(); now == pid || alive(pid) {
		t.Errorf("process %d serves, and %d was killed (alive: %t)", now, pid, alive(pid))
	}
	s.expectAnswer(10256, "healthz", "200 ")
}

// TestWeb reads the status page of a running host.
func TestWeb(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.config("webBindAddress: " + s.net + "1:10246\n")
	s.start()
	s.serving()
	s.expectAnswer(10246, "", "Mode userspace", "<dt>Revision</dt>", "Sync latency: ", "DataplaneActive")
	// The endpoint may be on this node; the picture shows it as served in any case.
	s.expectAnswer(10246, "services/ns/web", s.net+"101:", `<line x1="340" y1="23" x2="560" y2="23" class="served"/>`, "The dataplane has them as they should be.")
}
