// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
	"github.com/pointsman/pointsman/test/traffic"
)

// TestStories changes a cluster step by step, under load, with all our proxies at the same time. The hosts have the
// rights of the project's own manifests.
func TestStories(t *testing.T) {
	c := newContest(t)
	c.grantRights()
	for _, k := range kinds()[1:] {
		c.proxies = append(c.proxies, newProxy(t, k, c.api, c.token()))
	}
	for _, p := range c.proxies {
		p.start(t)
	}
	for _, s := range []struct {
		name string
		play func(*contest)
	}{
		{"PortRenamed", portRenamed},
		{"Events", events},
		{"SwapServerAway", swapServerAway},
		{"WatchExpired", watchExpired},
		{"HostKilled", hostKilled},
		{"Verbs", verbs},
	} {
		t.Run(s.name, func(t *testing.T) { s.play(c.on(t)) })
	}
}

func (c *contest) kubectl(args ...string) {
	c.Helper()
	args = append([]string{"--kubeconfig", c.api.Kubeconfig(cluster.Token(cluster.Admin), "")}, args...)
	if out, err := exec.CommandContext(c.Context(), "../../bin/peers/kubectl", args...).CombinedOutput(); err != nil {
		c.Fatalf("kubectl %s: %v: %s", strings.Join(args[2:], " "), err, out)
	}
}

// grantRights applies the project's own manifests, as an administrator would.
func (c *contest) grantRights() {
	c.Helper()
	c.kubectl("apply", "-k", "../../configs/kubernetes")
}

// token returns a token of the ServiceAccount of the manifests.
func (c *contest) token() string {
	c.Helper()
	answer, err := c.CoreV1().ServiceAccounts("kube-system").CreateToken(c.Context(), "pointsman", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		c.Fatal(err)
	}
	return answer.Status.Token
}

// eachUntil waits until ok returns no error for each proxy.
func (c *contest) eachUntil(what string, ok func(*proxy) error) {
	c.Helper()
	c.each(func(p *proxy) {
		if err := eventually.Try(timeout, func() error { return ok(p) }); err != nil {
			c.Errorf("%s: %s: %v; the end of its log:\n%s", p, what, err, p.lastOutput())
		}
	})
	if c.Failed() {
		c.FailNow()
	}
}

// expect waits until a pod's calls of a Service reach an endpoint; without one, until none is reached.
func (c *contest) expect(t thing, want ...end) {
	c.Helper()
	addr := ""
	for _, e := range want {
		addr = netip.AddrPortFrom(at(e.place).addrs[0], uint16(e.port)).String()
	}
	c.eachUntil(t.service.Name+" leads to "+addr, func(p *proxy) error {
		got, _, answered := strings.Cut(p.call(c.Context(), called("near1"), t.targets()[0], time.Second), " saw ")
		if answered && got != addr || !answered && addr != "" {
			return errors.New(got)
		}
		return nil
	})
}

// serve writes a Service with one endpoint, waits until it is reached, and starts a load of calls for each proxy. done
// ends them; none may have failed.
func (c *contest) serve(name string, to end) (t thing, done func()) {
	c.Helper()
	t = newThing(50, name, []end{to})
	c.write([]thing{t})
	c.expect(t, to)
	c.settle() // IPv6, too
	var all []*traffic.Load
	for _, p := range c.proxies {
		l := p.load(t)
		c.Cleanup(func() { l.End() })
		all = append(all, l)
	}
	return t, func() {
		c.Helper()
		for i, l := range all {
			l.Done(c, c.proxies[i].label)
		}
	}
}

// move changes the endpoint of a Service of serve.
func (c *contest) move(t *thing, to end) {
	c.Helper()
	t.ends = []end{to}
	for _, s := range t.slices() {
		c.putSlice(s)
	}
}

// lead changes the endpoint of a Service of serve, and waits until it is reached.
func (c *contest) lead(t *thing, to end) {
	c.Helper()
	c.move(t, to)
	c.expect(*t, to)
}

// portRenamed renames the port of a Service and of its endpoints.
func portRenamed(c *contest) {
	t, done := c.serve("renamed", on("far0", 8080))
	for i := range 5 {
		for j := range t.service.Spec.Ports {
			t.service.Spec.Ports[j].Name = fmt.Sprintf("p%d-%d", i, j)
		}
		to := on("far0", []int32{8081, 8080}[i%2])
		c.move(&t, to) // the new name is added before the old one is removed, as in any careful change
		c.settle()     // a host watches slices and Services separately: neither waits for the other
		c.put(t.service)
		c.expect(t, to)
	}
	done()
}

// events checks that each host writes events about the Node and about Services to the cluster.
func events(c *contest) {
	const shared = "203.0.113.77"
	first, second := newThing(51, "first", near(), externalIPs(shared)), newThing(52, "second", near(), externalIPs(shared))
	c.write([]thing{first})
	c.settle()
	c.write([]thing{first, second})
	for reason, about := range map[string]string{"Starting": "Node " + here, "FrontendTaken": "Service second"} {
		eventually.Succeeds(c, "there is an event "+reason+" of "+about, func() error {
			list, err := c.EventsV1().Events(namespace).List(c.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			notes := make(map[string]int) // all hosts write the same
			for _, e := range list.Items {
				if e.ReportingController == "pointsman" && e.ReportingInstance == here && e.Reason == reason && e.Regarding.Kind+" "+e.Regarding.Name == about {
					note, _, _ := strings.Cut(e.Note, " in mode ")
					notes[note]++
				}
			}
			if most := slices.Max(append(slices.Collect(maps.Values(notes)), 0)); most < len(c.proxies) {
				return fmt.Errorf("of %d events, at most %d have the same text, and there are %d hosts: %v", len(list.Items), most, len(c.proxies), notes)
			}
			return nil
		})
	}
}

// swapServerAway changes the mode of a node without connection to the API server, and back. What changed meanwhile is
// served afterwards.
func swapServerAway(c *contest) {
	c.proxies = slices.DeleteFunc(slices.Clone(c.proxies), func(p *proxy) bool { return p.apart }) // they have one plugin
	t, done := c.serve("points", on("far0", 8080))
	for _, p := range c.proxies {
		p.disconnect()
	}
	c.move(&t, on("far1", 8080))
	c.eachUntil("the host says so", func(p *proxy) error {
		s, err := p.Status(c.Context())
		if err == nil && !slices.ContainsFunc(s.Warnings, func(w admin.Warning) bool { return w.Code == "W008" }) {
			err = fmt.Errorf("the warnings are %+v", s.Warnings)
		}
		return err
	})
	serves := func(p *proxy, mode string) error {
		m, err := p.Mode(c.Context())
		if err == nil && (m.Mode != mode || m.Swap != nil) {
			err = fmt.Errorf("mode %s, swap %+v, last %+v", m.Mode, m.Swap, m.Last)
		}
		return err
	}
	other := func(p *proxy) string {
		return map[bool]string{true: "iptables", false: "userspace"}[p.mode == "userspace"]
	}
	for _, p := range c.proxies {
		if _, err := p.SwapMode(c.Context(), admin.SwapAsk{To: other(p)}); err != nil {
			c.Errorf("%s: %v", p, err)
		}
	}
	c.eachUntil("the other mode serves", func(p *proxy) error { return serves(p, other(p)) })
	for _, p := range c.proxies {
		if _, err := p.ResetMode(c.Context()); err != nil {
			c.Errorf("%s: %v", p, err)
		}
	}
	c.eachUntil("the mode before serves", func(p *proxy) error { return serves(p, p.mode) })
	c.expect(t, on("far0", 8080))
	for _, p := range c.proxies {
		p.connect(c, c.api)
	}
	c.expect(t, on("far1", 8080))
	done()
}

// watchExpired restarts the API server over an etcd that has compacted the revisions of the watches.
func watchExpired(c *contest) {
	t, done := c.serve("expired", on("far0", 8080))
	for _, p := range c.proxies {
		p.disconnect()
	}
	c.move(&t, on("far1", 8080))
	c.put(t.service) // one more revision
	c.api.StopServer()
	c.api.Compact()
	c.api.StartServer()
	for _, p := range c.proxies {
		p.connect(c, c.api)
	}
	c.expect(t, on("far1", 8080))
	done()
}

// hostKilled kills the hosts, changes what they serve, and starts them again.
func hostKilled(c *contest) {
	t, done := c.serve("orphan", on("far0", 8080))
	gone := newThing(51, "gone", far())
	c.write([]thing{t, gone})
	c.expect(gone, far()...)
	for _, p := range c.proxies {
		_ = p.process.Kill()
		<-p.ended
	}
	t.ends = []end{on("far1", 8080)}
	c.write([]thing{t})
	for _, p := range c.proxies {
		got := p.call(c.Context(), called("near1"), t.targets()[0], timeout)
		if want := netip.AddrPortFrom(at("far0").addrs[0], 8080).String(); !strings.HasPrefix(got, want+" ") {
			c.Errorf("without a host, %s leads to %s", p, got)
		}
		p.start(c.root)
	}
	c.expect(t, on("far1", 8080))
	c.expect(gone)
	done()
}

// verbs checks that rbac.yaml grants exactly the rights for the requests that the hosts have sent to the API server.
func verbs(c *contest) {
	role, err := c.RbacV1().ClusterRoles().Get(c.Context(), "pointsman", metav1.GetOptions{})
	if err != nil {
		c.Fatal(err)
	}
	granted := make(map[string]bool)
	for _, rule := range role.Rules {
		for _, resource := range rule.Resources {
			if group := rule.APIGroups[0]; group != "" {
				resource = group + "/" + resource
			}
			for _, verb := range rule.Verbs {
				granted[verb+" "+resource] = true
			}
		}
	}
	if asked := c.api.Asked("system:serviceaccount:kube-system:pointsman"); !maps.Equal(asked, granted) {
		c.Errorf("the hosts asked for %q, and rbac.yaml grants %q", slices.Sorted(maps.Keys(asked)), slices.Sorted(maps.Keys(granted)))
	}
}
