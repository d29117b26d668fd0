// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/test/eventually"
)

// sequence changes Services step by step. After each step it compares the answers of all worlds, also on UDP flows and
// connections that began in earlier steps.
func (c *contest) sequence(t *testing.T) {
	flows, held := c.flows(), new(openConnections)
	for _, s := range append(steps(), lifeOfService()...) {
		t.Run(s.label, func(t *testing.T) {
			c := c.on(t)
			c.write(s.things)
			c.compare(s.things)
			flows.compare(c, s.things)
			held.compare(c)
			held.add(c, s.things)
		})
	}
}

// A step is a change; things are the Services after the step.
type step struct {
	label  string
	things []thing
}

// steps returns the changes of two Services.
func steps() []step {
	web := func(ends []end, edits ...edit) thing {
		return newThing(0, "web", ends, append([]edit{nodePorts(30010)}, edits...)...)
	}
	other := func(ends []end, edits ...edit) thing { return newThing(0, "other", ends, edits...) }
	moved := func(t *thing) {
		for i := range t.service.Spec.Ports {
			t.service.Spec.Ports[i].Port = 81
		}
	}
	one := func(e end) []end { return []end{e} }
	return []step{
		{"no endpoint serves", []thing{web(nil)}},
		{"one endpoint", []thing{web(one(on("near0", 8080)))}},
		{"another endpoint", []thing{web(one(on("far0", 8080)))}},
		{"another target port", []thing{web(one(on("far0", 8081)))}},
		{"the endpoint is terminating and serves", []thing{web([]end{on("far0", 8081).is(false, true, true), on("near1", 8080)})}},
		{"the endpoint is removed", []thing{web(one(on("near1", 8080)))}},
		{"policies Local, endpoint here", []thing{web(one(on("near1", 8080)), externalLocal, internalLocal)}},
		{"policies Local, endpoint elsewhere", []thing{web(one(on("far0", 8080)), externalLocal, internalLocal)}},
		{"the port changes", []thing{web(one(on("near1", 8080)), moved)}},
		{"the port changes back", []thing{web(one(on("near1", 8080)))}},
		{"external IPs", []thing{web(one(on("near1", 8080)), externalIPs("198.51.100.1", "2001:db8:e::1"))}},
		{"other external IPs", []thing{web(one(on("near1", 8080)), externalIPs("198.51.100.2", "2001:db8:e::2"))}},
		{"no endpoints", []thing{web(nil, externalIPs("198.51.100.2", "2001:db8:e::2"))}},
		{"no node port", []thing{newThing(0, "web", one(on("near1", 8080)))}},
		{"another Service gets the ClusterIP", []thing{other(one(on("far1", 8080)))}},
		{"label of another proxy", []thing{other(one(on("far1", 8080)), label("service.kubernetes.io/service-proxy-name", "another"))}},
		{"label is removed", []thing{other(one(on("near0", 8080)))}},
		{"replaced by a Service with the same ClusterIP", []thing{web(one(on("near0", 8080)))}},
		{"all Services are deleted", nil},
	}
}

// A flow has one socket in each world, which is used again after each change of Services.
type flow struct {
	question
	conns []net.Conn // by world
	until time.Time  // when endpoints may close the connections
}

// flows are UDP sockets to the addresses of steps.
type flows []flow

func (c *contest) flows() flows {
	c.Helper()
	var all flows
	web := newThing(0, "web", []end{on("near0", 8080)}, nodePorts(30010), externalIPs("198.51.100.1", "2001:db8:e::1", "198.51.100.2"))
	for _, to := range web.targets() {
		if to.network[:3] != "udp" || strings.HasSuffix(to.way, "-node-port") {
			continue
		}
		for _, from := range []caller{called("near1"), called("client"), called("node")} {
			f := flow{question: question{from: from, to: to}}
			for _, p := range c.proxies {
				conn, err := p.hosts[from.place].Dial(c.Context(), to.network, from.addrs[to.family()], to.addr)
				if err != nil {
					c.Fatal(err)
				}
				c.Cleanup(func() { conn.Close() })
				f.conns = append(f.conns, conn)
			}
			all = append(all, f)
		}
	}
	return all
}

// compare asks again on all sockets, and compares the answers of all worlds.
func (all flows) compare(c *contest, things []thing) {
	c.Helper()
	if len(all) == 0 || !c.hasNodePortService(all[0].to.addr) {
		return
	}
	for _, f := range all {
		if f.to.way == "external-ip" && !c.hasExternalIP(f.to.addr.Addr()) {
			continue // the flow lasts as long as the kernel's conntrack entry or the relay's flow
		}
		q := question{from: f.from, to: f.to, flow: true}
		q.to.thing = things[0]
		var last []answer
		c.until(func() bool {
			last = f.ask(400 * time.Millisecond)
			for p := 1; p < len(last); p++ {
				if !alike(c.proxies[p].kind, q, last[0], last[p]) && explained(c.proxies[p], q, last[0], last[p]) == nil {
					return false
				}
			}
			return true
		})
		for p := 1; p < len(last); p++ {
			k := c.proxies[p].kind
			if k.mode == "userspace" && served(last[p]) {
				continue // a relay ends an idle flow sooner, and may then choose another endpoint
			}
			if alike(k, q, last[0], last[p]) {
				continue
			}
			if d := explained(c.proxies[p], q, last[0], last[p]); d != nil {
				c.shown[d.line] = true
			} else {
				c.Errorf("%s, an existing flow:\n\t%s: %s\n\t%s: %s", q, c.proxies[0], last[0], c.proxies[p], last[p])
			}
		}
	}
}

// hasNodePortService reports whether a served NodePort Service has the ClusterIP and port of addr.
func (c *contest) hasNodePortService(addr netip.AddrPort) bool {
	for _, s := range c.services {
		if s.Spec.ClusterIP == addr.Addr().String() && len(s.Spec.Ports) > 0 && s.Spec.Ports[0].Port == int32(addr.Port()) && s.Labels == nil {
			return s.Spec.Type == corev1.ServiceTypeNodePort
		}
	}
	return false
}

// hasExternalIP reports whether a served Service has the external IP addr.
func (c *contest) hasExternalIP(addr netip.Addr) bool {
	for _, s := range c.services {
		if s.Labels == nil && slices.Contains(s.Spec.ExternalIPs, addr.String()) {
			return true
		}
	}
	return false
}

// until waits up to five seconds until ok returns true.
func (c *contest) until(ok func() bool) {
	_ = eventually.Try(5*time.Second, func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	})
}

// ask asks on f's sockets, in all worlds in parallel.
func (f flow) ask(wait time.Duration) []answer {
	answers := make([]answer, len(f.conns))
	var all sync.WaitGroup
	for i, conn := range f.conns {
		all.Go(func() {
			line, err := ask(conn, f.to.size, wait)
			if err != nil {
				line = failed(err)
			}
			answers[i] = answer{line}
		})
	}
	all.Wait()
	return answers
}
