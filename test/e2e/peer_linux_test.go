// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/cluster"
)

// A pair compares pointsman on node-a with kube-proxy on node-b.
type pair struct {
	*world
	ours, peers *node
}

// peer lets Kubernetes' own kube-proxy serve node-b beside pointsman on node-a, and compares their answers to probes,
// scrapes and load balancers.
func peer(w *world) {
	w = w.firstLand()
	p := pair{w, w.nodes[0], w.nodes[1]}
	s := w.service("asked", func(s *corev1.Service) {
		s.Spec.Type, s.Spec.ExternalTrafficPolicy = corev1.ServiceTypeLoadBalancer, corev1.ServiceExternalTrafficPolicyLocal
	})
	w.endpoints("asked", p.ours.readyEndpoint(0), p.peers.readyEndpoint(0))
	w.start(p.ours)
	w.kubeProxy(p.peers.machines[0])
	p.compareHealthChecks(s)
	w.endpoints("asked", p.ours.readyEndpoint(0), p.peers.readyEndpoint(0), p.peers.readyEndpoint(1), p.ours.readyEndpoint(1))
	p.compareHealthChecks(s)
	w.endpoints("asked")
	p.compareHealthChecks(s)
	p.comparePages()
	p.compareMetrics()
	p.removeNodes()
	for j := range p.peers.pods { // without its Node, ours follows changes
		w.endpoints("asked", p.peers.readyEndpoint(j))
		w.expect(p.ours.pods[0], "tcp4", at(s, 0, 80), answerOf(p.peers.pods[j], backend, p.ours.pods[0].addrs[0]))
	}
}

// expectSame waits until both answers are equal and not empty.
func (p pair) expectSame(what string, say func(*node) (string, error)) {
	p.Helper()
	p.until(what, func() error {
		ours, err := say(p.ours)
		peers, again := say(p.peers)
		if ours == peers && err == nil && again == nil && ours != "" {
			return nil
		}
		return errors.Join(err, again, fmt.Errorf("ours:\n%s\nkube-proxy's:\n%s", ours, peers))
	})
}

// compareHealthChecks asks as a load balancer does, at the healthCheckNodePort of s.
func (p pair) compareHealthChecks(s *corev1.Service) {
	p.Helper()
	for family := range 2 {
		p.expectSame("health check", func(n *node) (string, error) {
			answer, body, err := p.lands[0].fetch(p.client, check(n, family, s))
			if err != nil {
				return "", err
			}
			return fmt.Sprint(answer.StatusCode, contentHeaders(answer), string(body)), nil
		})
	}
}

// check returns the URL at which a load balancer asks for a Service on n.
func check(n *node, family int, s *corev1.Service) string {
	return fmt.Sprintf("http://%s/", netip.AddrPortFrom(n.addrs[family], uint16(s.Spec.HealthCheckNodePort)))
}

// contentHeaders returns the headers that describe the body.
func contentHeaders(answer *http.Response) string {
	return fmt.Sprintf(" %q %q %q ", answer.Header["Content-Type"], answer.Header["X-Content-Type-Options"], answer.Header["X-Load-Balancing-Endpoint-Weight"])
}

// comparePages asks for every page that kube-proxy has, and for some that it does not have.
func (p pair) comparePages() {
	p.Helper()
	for _, url := range []string{
		"10256/healthz", "10256/livez", "10256/", "10256/healthz/nothing", "10256/metrics",
		"10249/healthz", "10249/proxyMode", "10249/metrics", "10249/metrics/slis", "10249/configz",
		"10249/flagz", "10249/statusz", "10249/", "10249/livez", "10249/debug/pprof/",
	} {
		p.expectSame(url, func(n *node) (string, error) {
			answer, body, err := p.lands[0].fetch(n.place, "http://127.0.0.1:"+url)
			if err != nil {
				return "", err
			}
			text := fmt.Sprint(answer.StatusCode, " ", answer.Header["Content-Type"])
			switch {
			case strings.HasPrefix(url, "10256/"):
				return text + contentHeaders(answer) + jsonShape(body), nil
			case strings.HasSuffix(url, "/configz"):
				var groups map[string]map[string]any
				err := json.Unmarshal(body, &groups)
				return fmt.Sprint(text, " groups ", len(groups)), err
			case len(body) < 100:
				return text + " " + string(body), nil
			}
			return text, nil
		})
	}
}

// jsonShape returns the names in a JSON body, with the kind of each value.
func jsonShape(body []byte) string {
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return string(body)
	}
	return kindOf(value)
}

func kindOf(value any) string {
	fields, ok := value.(map[string]any)
	if !ok {
		return fmt.Sprintf("%T", value)
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		list = append(list, name+" "+kindOf(fields[name]))
	}
	return "{" + strings.Join(list, ", ") + "}"
}

// onlyOne has the metrics that only one of them serves here, and why.
var onlyOne = map[string]string{
	"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":         "kube-proxy has it when one has failed, and ours begins with 0",
	"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total": "the same",
}

// compareMetrics compares names, types, labels and buckets of the metrics that both serve.
func (p pair) compareMetrics() {
	p.Helper()
	p.expectSame("metrics", func(n *node) (string, error) {
		all := p.scrape(n)
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if onlyOne[name] == "" {
				fmt.Fprintf(&text, "%s %s\n", name, all[name])
			}
		}
		if len(all) < 15 {
			return "", fmt.Errorf("only %d metrics", len(all))
		}
		return text.String(), nil
	})
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		p.Fatal(err)
	}
	for name := range p.scrape(p.peers) {
		if !strings.Contains(string(doc), "`"+name+"`") {
			p.Errorf("docs/metrics.md does not mention kube-proxy's metric %s", name)
		}
	}
}

// scrape returns each of kube-proxy's metrics on a node: its type, and its series without their values.
func (p pair) scrape(n *node) map[string]string {
	p.Helper()
	all := make(map[string]string)
	body := p.lands[0].get(n.place, "http://127.0.0.1:10249/metrics")
	series := regexp.MustCompile(`^(kubeproxy_[a-z0-9_]+)(\{[^}]*\})? `)
	name := ""
	for _, line := range lines(body) {
		if rest, ok := strings.CutPrefix(line, "# TYPE kubeproxy_"); ok {
			name, rest, _ = strings.Cut("kubeproxy_"+rest, " ")
			all[name] = rest
		} else if m := series.FindStringSubmatch(line); m != nil {
			all[name] += "\n" + strings.TrimPrefix(m[1], name) + m[2]
		}
	}
	return all
}

// removeNodes excludes the nodes from load balancing as the autoscaler does, and then deletes them.
func (p pair) removeNodes() {
	p.Helper()
	codes := func(want string) {
		p.Helper()
		p.expectSame("healthz and livez", func(n *node) (string, error) {
			text := ""
			for _, path := range []string{"healthz", "livez"} {
				answer, body, err := p.lands[0].fetch(p.client, fmt.Sprintf("http://%s:10256/%s", n.addrs[0], path))
				if err != nil {
					return "", err
				}
				text += fmt.Sprintln(answer.StatusCode, regexp.MustCompile(`"nodeEligible":\w+`).FindString(string(body)))
			}
			if text != want {
				return "", fmt.Errorf("got %q; want %q", text, want)
			}
			return text, nil
		})
	}
	both := func(edit func(*corev1.Node)) {
		for _, n := range p.nodes {
			p.changeNode(n, edit)
		}
	}
	codes("200 \"nodeEligible\":true\n200 \n")
	both(func(o *corev1.Node) {
		o.Spec.Taints = []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler", Effect: corev1.TaintEffectNoSchedule}}
	})
	codes("503 \"nodeEligible\":false\n200 \n")
	both(func(o *corev1.Node) {
		o.Spec.Taints = []corev1.Taint{{Key: "other", Effect: corev1.TaintEffectNoSchedule}}
	})
	codes("200 \"nodeEligible\":true\n200 \n")
	both(func(o *corev1.Node) { o.Finalizers = []string{"pointsman.dev/test"} })
	for _, n := range p.nodes {
		if err := p.kube.CoreV1().Nodes().Delete(p.Context(), n.name, metav1.DeleteOptions{}); err != nil {
			p.Fatal(err)
		}
	}
	codes("503 \"nodeEligible\":false\n200 \n")
	both(func(o *corev1.Node) { o.Finalizers = nil }) // kube-proxy exits then
}

// kubeProxy runs Kubernetes' kube-proxy on a machine, until the test ends.
func (w *world) kubeProxy(m *machine, args ...string) {
	w.Helper()
	log, err := os.Create(m.path("kube-proxy.log"))
	if err != nil {
		w.Fatal(err)
	}
	defer log.Close()
	binary, err := filepath.Abs("../../bin/peers/kube-proxy")
	if err != nil {
		w.Fatal(err)
	}
	args = append([]string{"--proxy-mode=iptables", "--hostname-override=" + m.node.name, "--conntrack-max-per-core=0",
		"--iptables-min-sync-period=0s", "--detect-local-mode=NodeCIDR", "--kubeconfig=" + w.api.Kubeconfig(cluster.Token(cluster.Admin), "https://127.0.0.1:6443")}, args...)
	cmd := exec.Command(binary, args...)
	cmd.Stdout, cmd.Stderr = log, log
	ended := w.startProcess(m, cmd)
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	w.expectAnswer(m.node.place, "http://127.0.0.1:10249/proxyMode", "200 iptables")
}
