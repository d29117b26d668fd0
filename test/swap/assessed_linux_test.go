// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"
)

// balanced is a Service with a healthCheckNodePort, and an endpoint on this node.
const balanced = `
apiVersion: v1
kind: Service
metadata: {name: front, namespace: shop}
spec:
  type: LoadBalancer
  clusterIP: 172.30.0.11
  externalTrafficPolicy: Local
  healthCheckNodePort: 30999
  ports: [{name: tcp, port: 8080, nodePort: 30081, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: front-1, namespace: shop, labels: {kubernetes.io/service-name: front}}
addressType: IPv4
ports: [{name: tcp, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.180.0.1], nodeName: here}]
`

// newProbedNode starts a node whose host answers probes, with stand-ins for the programs of iptables, and does not wait
// until it serves.
func newProbedNode(t *testing.T, mode string, tools map[string]string) *node {
	t.Helper()
	n := newNode(t, mode)
	n.needsLaunchedPlugins()
	n.write("host.yaml", strings.NewReplacer(
		`healthzBindAddress: ""`, "healthzBindAddress: 127.0.0.1:10256", `metricsBindAddress: ""`, "metricsBindAddress: 127.0.0.1:10249",
	).Replace(n.settings(mode))+"hostnameOverride: here\n")
	n.write("services/front.yaml", balanced)
	for tool, text := range tools {
		n.write("tools/"+tool, "#!/bin/sh\n"+strings.ReplaceAll(text, "DIR", n.dir))
		if err := os.Chmod(n.path("tools/"+tool), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(n.path("tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	n.exec(n.host(), "PATH="+n.path("tools")+":"+os.Getenv("PATH"))
	n.until("the host answers", func() error {
		_, err := n.Status(t.Context())
		if live := get(10256, "livez"); err == nil && !strings.HasPrefix(live, "200 ") {
			err = errors.New(live)
		}
		return err
	})
	return n
}

// standIns returns stand-ins for the programs that write rules. All of them run this script instead.
func standIns(text string) map[string]string {
	tools := make(map[string]string)
	for _, name := range []string{"iptables", "ip6tables", "iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		tools[name+"-restore"] = text
	}
	return tools
}

// removeStandIns removes the stand-ins.
func (n *node) removeStandIns(tools map[string]string) {
	n.Helper()
	for tool := range tools {
		if err := os.Remove(n.path("tools/" + tool)); err != nil {
			n.Fatal(err)
		}
	}
}

// get returns the host's answer as "CODE BODY".
func get(port int, path string) string {
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", port, path))
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

// expectAnswer waits until an answer has a code and all of want. Meanwhile livez must always be 200.
func (n *node) expectAnswer(port int, path, code string, want ...string) {
	n.Helper()
	n.until(path+" says "+code, func() error {
		if live := get(10256, "livez"); strings.HasPrefix(live, "503 ") {
			n.Fatalf("livez: %s", live)
		}
		got := get(port, path)
		for _, part := range append(want, code+" ") {
			if !strings.Contains(got, part) {
				return fmt.Errorf("%s: %s has no %q", path, got, part)
			}
		}
		return nil
	})
}

// statusIs checks that status exits as for a node that is well or is not, and prints part.
func (n *node) statusIs(well bool, part string) error {
	out, err := n.verb("status")
	if (err == nil) != well || strings.Contains(out, "is well") != well || !strings.Contains(out, part) {
		return fmt.Errorf("status: %v, without %q: %s", err, part, out)
	}
	return nil
}

// expectNotReady waits until every interface of the host tells that nothing has been served yet, and why.
func (n *node) expectNotReady(why string) {
	n.Helper()
	n.until("status says why", func() error { return n.statusIs(false, why) })
	n.expectAnswer(10256, "readyz", "503", `"ready":false`)
	n.expectAnswer(10249, "metrics", "200", "\npointsman_ready 0\n", "\npointsman_live 1\n")
	n.expectAnswer(10256, "healthz", "503", `"nodeEligible":true,"healthy":false`)
	n.expectAnswer(10249, "metrics", "200", "\npointsman_healthy 0\n")
	n.expectAnswer(30999, "", "503", `"localEndpoints": 1`, `"serviceProxyHealthy": false`)
	n.until("status says that it waits", func() error { return n.statusIs(false, "W013 ") })
}

// expectReady waits until every interface of the host tells that all is well.
func (n *node) expectReady() {
	n.Helper()
	n.expectAnswer(10256, "readyz", "200", `"ready":true`)
	n.expectAnswer(10256, "healthz", "200", `"healthy":true`)
	n.expectAnswer(30999, "", "200", `"serviceProxyHealthy": true`)
	n.expectAnswer(10249, "metrics", "200", "\npointsman_ready 1\n", "\npointsman_healthy 1\n", "\npointsman_waiting_seconds 0\n", "\npointsman_plugin_active{plugin=\"iptables\"} 1\n")
	n.until("the Service is answered", func() error { return n.tryCall(pod, netip.AddrPortFrom(vip, port)) })
}

// TestKernelRestoreFails has a node on which every update fails.
func TestKernelRestoreFails(t *testing.T) {
	tools := standIns("cat >/dev/null; echo 'no room for it' >&2; exit 4\n")
	n := newProbedNode(t, "iptables", tools)
	n.expectNotReady("no room for it")
	n.removeStandIns(tools)
	n.expectReady()
	n.until("all is well", func() error { return n.statusIs(true, "") })
}

// TestKernelSlowFirstSync has a node whose first update succeeds, but takes longer than the timeout of healthz: load
// balancers leave the node out meanwhile, and nothing ends the host.
func TestKernelSlowFirstSync(t *testing.T) {
	n := newProbedNode(t, "iptables", standIns(`
end=$(($(date +%s) + 600))
while [ ! -e DIR/fast ] && [ $(date +%s) -lt $end ]; do :; done # at work, and not hung
PATH=${PATH#*:} exec "${0##*/}" "$@"
`))
	began, err := n.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.expectNotReady("has not confirmed all Services yet")
	n.write("fast", "")
	n.expectReady()
	n.until("all is well", func() error { return n.statusIs(true, "") })
	if now, err := n.Status(t.Context()); err != nil || now.Dataplane.Restarts > 0 || now.Host.Started != began.Host.Started {
		t.Errorf("it went on as it was: %v, %+v", err, now)
	}
}
