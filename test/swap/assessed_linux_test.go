// SPDX-License-Identifier: Apache-2.0

package swap

import (
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

// TestKernelRestoreFails has a node on which every update fails, until the programs of iptables work: every interface of
// the host tells that nothing has been served yet, and why, and then that all is well.
func TestKernelRestoreFails(t *testing.T) {
	n := newNode(t, "iptables")
	n.needsLaunchedPlugins()
	n.probed = true
	n.addSettings("hostnameOverride: here\n")
	n.writeMode("iptables")
	n.write("services/front.yaml", balanced)
	n.exec(n.host(), n.replaceTools("-restore", "cat >/dev/null; echo 'no room for it' >&2; exit 4\n"))
	n.until("status says why", func() error { return n.statusIs(false, "no room for it") })
	n.expectAnswer(10256, "readyz", "503", `"ready":false`)
	n.expectAnswer(10249, "metrics", "200", "\npointsman_ready 0\n", "\npointsman_live 1\n")
	n.expectAnswer(10256, "healthz", "503", `"nodeEligible":true,"healthy":false`)
	n.expectAnswer(10249, "metrics", "200", "\npointsman_healthy 0\n")
	n.expectAnswer(30999, "", "503", `"localEndpoints": 1`, `"serviceProxyHealthy": false`)
	n.until("status says that it waits", func() error { return n.statusIs(false, "W013 ") })
	if err := os.RemoveAll(n.path("tools")); err != nil {
		t.Fatal(err)
	}
	n.expectAnswer(10256, "readyz", "200", `"ready":true`)
	n.expectAnswer(10256, "healthz", "200", `"healthy":true`)
	n.expectAnswer(30999, "", "200", `"serviceProxyHealthy": true`)
	n.expectAnswer(10249, "metrics", "200", "\npointsman_ready 1\n", "\npointsman_healthy 1\n", "\npointsman_waiting_seconds 0\n", "\npointsman_plugin_active{plugin=\"iptables\"} 1\n")
	n.until("the Service is answered", func() error { return n.tryCall(pod, netip.AddrPortFrom(vip, port)) })
	n.until("all is well", func() error { return n.statusIs(true, "") })
}

// replaceTools puts scripts in place of iptables and its variants with a suffix, for a host with the returned setting of
// its environment.
func (n *node) replaceTools(suffix, script string) (env string) {
	n.Helper()
	for _, tool := range []string{"iptables", "ip6tables", "iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy"} {
		n.write("tools/"+tool+suffix, "#!/bin/sh\n"+script)
		if err := os.Chmod(n.path("tools/"+tool+suffix), 0o755); err != nil {
			n.Fatal(err)
		}
	}
	return "PATH=" + n.path("tools") + ":" + os.Getenv("PATH")
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
		return lacks(get(port, path), append(want, code+" ")...)
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
