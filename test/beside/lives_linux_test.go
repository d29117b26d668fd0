// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// lifeOfService returns steps that change a Service into other kinds of Services, without deleting it.
func lifeOfService() []step {
	life := func(edits ...edit) []thing { return []thing{newThing(20, "life", spread(), edits...)} }
	ports := nodePorts(30300)
	load := loadBalancer("198.51.100.30", "2001:db8:e::30")
	allowed := sources("198.18.0.0/16", "2001:db8:c::/48")
	return []step{
		{"ClusterIP", life()},
		{"LoadBalancer with source ranges", life(ports, load, allowed)},
		{"NodePort, no longer LoadBalancer", life(ports)},
		{"ports swap names", life(ports, swapped)},
		{"one family", life(ports, family(0))},
		{"both families", life(ports)},
		{"ExternalName", life(externalName)},
		{"NodePort, no longer ExternalName", life(ports)},
		{"headless", life(headless)},
	}
}

func swapped(t *thing) {
	p := t.service.Spec.Ports
	p[0].Name, p[1].Name = p[1].Name, p[0].Name
}

// externalName changes the Service to type ExternalName.
func externalName(t *thing) {
	spec := &t.service.Spec
	spec.Type, spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	spec.ClusterIP, spec.ClusterIPs, spec.IPFamilies, spec.IPFamilyPolicy = "", nil, nil, nil
}

// headless removes the ClusterIPs.
func headless(t *thing) {
	spec := &t.service.Spec
	spec.ClusterIP, spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
}

// openConnections are connections that stay open while Services change.
type openConnections []flow

// longestConnection is shorter than the time for which an endpoint keeps a connection, by the duration of a round.
const longestConnection = 4 * time.Minute

// add opens connections to things that all worlds serve.
func (all *openConnections) add(c *contest, things []thing) {
	c.Helper()
	for _, t := range things {
		for _, to := range t.targets() {
			if !strings.HasPrefix(to.network, "tcp") || to.way == "loopback-node-port" || to.way == "second-node-port" {
				continue
			}
			f := flow{question: question{from: called("near1"), to: to}, until: time.Now().Add(longestConnection)}
			if c.open(&f); len(f.conns) == len(c.proxies) && servedAll(f.ask(time.Second)) {
				*all = append(*all, f)
			}
		}
	}
}

// open opens f in each world, if possible.
func (c *contest) open(f *flow) {
	ctx, cancel := context.WithTimeout(c.Context(), time.Second)
	defer cancel()
	for _, p := range c.proxies {
		conn, err := p.hosts[f.from.place].Dial(ctx, f.to.network, f.from.addrs[f.to.family()], f.to.addr)
		if err != nil {
			return
		}
		c.root.Cleanup(func() { conn.Close() })
		f.conns = append(f.conns, conn)
	}
}

// compare asks again on all connections. A connection that continues with kube-proxy must continue in all worlds.
func (all *openConnections) compare(c *contest) {
	c.Helper()
	var kept openConnections
	for _, f := range *all {
		if time.Now().After(f.until) {
			continue
		}
		for _, conn := range f.conns {
			_ = conn.SetDeadline(time.Now().Add(2 * time.Second))
			_, _ = conn.Write([]byte("who\n"))
		}
		answers := f.ask(2 * time.Second)
		for p, a := range answers {
			if served(answers[0]) && !served(a) {
				c.Errorf("%s, an existing connection:\n\t%s: %s\n\t%s: %s", f.question, c.proxies[0], answers[0], c.proxies[p], a)
			}
		}
		if servedAll(answers) {
			kept = append(kept, f)
		}
	}
	c.Logf("%d of %d connections continue", len(kept), len(*all))
	*all = kept
}

func servedAll(answers []answer) bool {
	for _, a := range answers {
		if !served(a) {
			return false
		}
	}
	return true
}
