// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/test/eventually"
)

// TestInterfaces compares how Kubernetes' own kube-proxy and our host answer probes, scrapes and load balancers.
func TestInterfaces(t *testing.T) {
	c := newContest(t, theirNft, ourNft)
	c.each(func(p *proxy) { p.start(t) })
	service := loadBalancer("198.51.100.30", "2001:db8:e::30")
	web := newThing(20, "asked", nil, service, externalLocal, healthPort(30409))
	for _, ends := range [][]end{{on("near0", 8080), on("far0", 8080)}, spread(), nil} {
		web.ends = ends
		c.write([]thing{web})
		for _, addr := range at("node").addrs {
			url := "http://" + netip.AddrPortFrom(addr, 30409).String() + "/"
			c.expectSame("the health check", func(p *proxy) (string, error) {
				answer, body, err := p.fetch("client", url)
				if err != nil {
					return "", err
				}
				return fmt.Sprint(answer.StatusCode, contentHeaders(answer), string(body)), nil
			})
		}
	}
	c.comparePages()
	c.compareMetrics()
	c.removeNode()
	ours := c.on(t)
	ours.proxies = c.proxies[1:]
	for _, e := range []end{on("near0", 8080), on("near1", 8080)} { // without its Node, ours follows changes
		ours.lead(&web, e)
	}
}

// fetch gets a page from a place of the world.
func (w *world) fetch(place, url string) (*http.Response, []byte, error) {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, network, to string) (conn net.Conn, err error) {
		err = w.hosts[place].Do(func() error {
			conn, err = new(net.Dialer).DialContext(ctx, network, to)
			return err
		})
		return conn, err
	}}
	answer, err := (&http.Client{Timeout: 5 * time.Second, Transport: transport}).Get(url)
	if err != nil {
		return nil, nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer, body, err
}

// expectSame waits until both proxies answer the same, and something.
func (c *contest) expectSame(what string, say func(*proxy) (string, error)) {
	c.Helper()
	eventually.Succeeds(c, what, func() error {
		theirs, err := say(c.proxies[0])
		ours, again := say(c.proxies[1])
		if ours == theirs && err == nil && again == nil && ours != "" {
			return nil
		}
		return errors.Join(err, again, fmt.Errorf("ours:\n%s\nkube-proxy's:\n%s", ours, theirs))
	})
}

// contentHeaders returns the headers that describe the body.
func contentHeaders(answer *http.Response) string {
	return fmt.Sprintf(" %q %q %q ", answer.Header["Content-Type"], answer.Header["X-Content-Type-Options"], answer.Header["X-Load-Balancing-Endpoint-Weight"])
}

// comparePages asks for every page that kube-proxy has, and for some that it does not have.
func (c *contest) comparePages() {
	c.Helper()
	for _, url := range []string{
		"10256/healthz", "10256/livez", "10256/", "10256/healthz/nothing", "10256/metrics",
		"10249/healthz", "10249/proxyMode", "10249/metrics", "10249/metrics/slis", "10249/configz",
		"10249/flagz", "10249/statusz", "10249/", "10249/livez", "10249/debug/pprof/",
	} {
		c.expectSame(url, func(p *proxy) (string, error) {
			answer, body, err := p.fetch("node", "http://127.0.0.1:"+url)
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
				return fmt.Sprint(text, " has settings: ", len(groups["kubeproxy.config.k8s.io"]) > 0), err
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
func (c *contest) compareMetrics() {
	c.Helper()
	c.expectSame("metrics", func(p *proxy) (string, error) {
		all, err := p.scrape()
		var text strings.Builder
		for _, name := range slices.Sorted(maps.Keys(all)) {
			if onlyOne[name] == "" {
				fmt.Fprintf(&text, "%s %s\n", name, all[name])
			}
		}
		if len(all) < 15 {
			return "", fmt.Errorf("only %d metrics: %w", len(all), err)
		}
		return text.String(), nil
	})
	doc, err := os.ReadFile("../../docs/metrics.md")
	theirs, failed := c.proxies[0].scrape()
	if err := errors.Join(err, failed); err != nil {
		c.Fatal(err)
	}
	for name := range theirs {
		if !strings.Contains(string(doc), "`"+name+"`") {
			c.Errorf("docs/metrics.md does not mention kube-proxy's metric %s", name)
		}
	}
}

// scrape returns each of kube-proxy's metrics: its type, and its series without their values.
func (p *proxy) scrape() (map[string]string, error) {
	_, body, err := p.fetch("node", "http://127.0.0.1:10249/metrics")
	all, name := make(map[string]string), ""
	series := regexp.MustCompile(`^(kubeproxy_[a-z0-9_]+)(\{[^}]*\})? `)
	for line := range strings.Lines(string(body)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "# TYPE kubeproxy_"); ok {
			name, rest, _ = strings.Cut("kubeproxy_"+rest, " ")
			all[name] = rest
		} else if m := series.FindStringSubmatch(line); m != nil {
			all[name] += "\n" + strings.TrimPrefix(m[1], name) + m[2]
		}
	}
	return all, err
}

// removeNode excludes the node from load balancing as the autoscaler does, and then deletes its object.
func (c *contest) removeNode() {
	c.Helper()
	expect := func(want string) {
		c.Helper()
		c.expectSame("healthz and livez", func(p *proxy) (string, error) {
			text := ""
			for _, path := range []string{"healthz", "livez"} {
				answer, body, err := p.fetch("node", "http://127.0.0.1:10256/"+path)
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
	change := func(edit func(*corev1.Node)) {
		c.Helper()
		object, err := c.CoreV1().Nodes().Get(c.Context(), here, metav1.GetOptions{})
		if err == nil {
			edit(object)
			_, err = c.CoreV1().Nodes().Update(c.Context(), object, metav1.UpdateOptions{})
		}
		if err != nil {
			c.Fatal(err)
		}
	}
	taint := func(key string) {
		change(func(o *corev1.Node) { o.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}} })
	}
	expect("200 \"nodeEligible\":true\n200 \n")
	taint("ToBeDeletedByClusterAutoscaler")
	expect("503 \"nodeEligible\":false\n200 \n")
	taint("other")
	expect("200 \"nodeEligible\":true\n200 \n")
	change(func(o *corev1.Node) { o.Finalizers = []string{"pointsman.dev/test"} })
	if err := c.CoreV1().Nodes().Delete(c.Context(), here, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
	expect("503 \"nodeEligible\":false\n200 \n")
	change(func(o *corev1.Node) { o.Finalizers = nil }) // kube-proxy exits then
}
