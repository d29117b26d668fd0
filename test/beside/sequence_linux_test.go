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

// sequence changes Services one step at a time. After each step all worlds serve the same, and treat UDP flows from
// before in the same way.
func (c *contest) sequence(t *testing.T) {
	flows, held := c.flows(), new(openConnections)
	for _, s := range append(steps(), lifeOfService()...) {
		t.Run(s.label, func(t *testing.T) {
			c := c.on(t)
			c.write(s.things)
			c.compare(s.things)
			c.compareHealth(s.things)
			flows.compare(c, s.things)
			held.compare(c)
			held.add(c, s.things)
		})
	}
}

// A step holds the Services after it.
type step struct {
	label  string
	things []thing
}

// steps returns the lives of two Services.
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
		{"one comes", []thing{web(one(on("near0", 8080)))}},
		{"another takes its place", []thing{web(one(on("far0", 8080)))}},
		{"at another port", []thing{web(one(on("far0", 8081)))}},
		{"it ends, and serves on", []thing{web([]end{on("far0", 8081).is(false, true, true), on("near1", 8080)})}},
		{"it is gone", []thing{web(one(on("near1", 8080)))}},
		{"only for this node", []thing{web(one(on("near1", 8080)), externalLocal, internalLocal)}},
		{"and only elsewhere", []thing{web(one(on("far0", 8080)), externalLocal, internalLocal)}},
		{"the port changes", []thing{web(one(on("near1", 8080)), moved)}},
		{"the port changes back", []thing{web(one(on("near1", 8080)))}},
		{"with an external address", []thing{web(one(on("near1", 8080)), externalIPs("198.51.100.1", "2001:db8:e::1"))}},
		{"that moves", []thing{web(one(on("near1", 8080)), externalIPs("198.51.100.2", "2001:db8:e::2"))}},
		{"its endpoints go", []thing{web(nil, externalIPs("198.51.100.2", "2001:db8:e::2"))}},
		{"no node port", []thing{newThing(0, "web", one(on("near1", 8080)))}},
		{"its address is another's", []thing{other(one(on("far1", 8080)))}},
		{"it is of another proxy", []thing{other(one(on("far1", 8080)), label("service.kubernetes.io/service-proxy-name", "another"))}},
		{"it is ours again", []thing{other(one(on("near0", 8080)))}},
		{"it goes and comes with the same address", []thing{web(one(on("near0", 8080)))}},
		{"everything goes", nil},
	}
}

// A flow is one socket that is used again while Services change.
type flow struct {
	question
	conns []net.Conn // a socket in each world
	until time.Time  // how long the endpoints keep them
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

// compare asks once more on all sockets, while these things exist.
func (all flows) compare(c *contest, things []thing) {
	c.Helper()
	if len(all) == 0 || !c.standing(all[0].to.addr) {
		return
	}
	for _, f := range all {
		if f.to.way == "external-ip" && !c.claimed(f.to.addr.Addr()) {
			continue // it lasts as long as the kernel, or a relay, remembers it
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
				continue // an idle caller is forgotten sooner, and may then reach another endpoint
			}
			if alike(k, q, last[0], last[p]) {
				continue
			}
			if d := explained(c.proxies[p], q, last[0], last[p]); d != nil {
				c.shown[d.line] = true
			} else {
				c.Errorf("%s, a flow that had begun:\n\t%s: %s\n\t%s: %s", q, c.proxies[0], last[0], c.proxies[p], last[p])
			}
		}
	}
}

// standing reports whether a Service has addr now.
func (c *contest) standing(addr netip.AddrPort) bool {
	for _, s := range c.services {
		if s.Spec.ClusterIP == addr.Addr().String() && len(s.Spec.Ports) > 0 && s.Spec.Ports[0].Port == int32(addr.Port()) && s.Labels == nil {
			return s.Spec.Type == corev1.ServiceTypeNodePort
		}
	}
	return false
}

// claimed reports whether a Service that is served has addr as an external address now.
func (c *contest) claimed(addr netip.Addr) bool {
	for _, s := range c.services {
		if s.Labels == nil && slices.Contains(s.Spec.ExternalIPs, addr.String()) {
			return true
		}
	}
	return false
}

// until tries a few times.
func (c *contest) until(ok func() bool) {
	_ = eventually.Try(5*time.Second, func() error {
		if !ok() {
			return errors.New("not yet")
		}
		return nil
	})
}

// ask asks on f's sockets, in all worlds at once.
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
