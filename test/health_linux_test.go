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
	"time"
)

// probedSystem returns a system whose host answers probes and scrapes; more is appended to its config.
func probedSystem(t *testing.T, more string) *system {
	t.Helper()
	s := newSystem(t)
	s.write("host.yaml", strings.NewReplacer(
		`healthzBindAddress: ""`, "healthzBindAddress: "+s.net+"1:10256",
		`metricsBindAddress: ""`, "metricsBindAddress: "+s.net+"1:10249",
	).Replace(s.text(more)))
	return s
}

// get returns the host's answer as "CODE BODY".
func (s *system) get(port int, path string) string {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(fmt.Sprintf("http://%s1:%d/%s", s.net, port, path))
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %s", answer.StatusCode, body)
}

// expectAnswer waits until an answer contains all of want.
func (s *system) expectAnswer(port int, path string, want ...string) {
	s.t.Helper()
	s.until(path+" is answered", func() error {
		got := s.get(port, path)
		for _, w := range want {
			if !strings.Contains(got, w) {
				return fmt.Errorf("%s\ndoes not have %q", got, w)
			}
		}
		return nil
	})
}

// TestProbesAndMetrics reads probes and metrics before and after the plugin is killed.
func TestProbesAndMetrics(t *testing.T) {
	t.Parallel()
	s := probedSystem(t, "")
	backend(t, at(s.net+"101"))
	s.manifest("web.yaml", tcpService("web", "NET.10", 18080, "NET.101"))
	s.start()
	s.served(s.net+"10:18080")
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
