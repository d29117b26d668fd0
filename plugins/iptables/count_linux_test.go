// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/field"
	"github.com/pointsman/pointsman/test/traffic"
)

// Connections to a node port on 127.0.0.1, and packets that conntrack cannot place, are
// counted under the names that kube-proxy has for them; a cleanup takes the counters
// away.
func TestKernelCounts(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		s, left := g.Place(scenario(k.T, "node-port"))
		if len(left) > 0 {
			k.Fatal(left)
		}
		stage, err := g.Open(k.Context(), nil, s)
		if err != nil {
			k.Fatal(err)
		}
		defer stage.Close()
		p := k.start()
		k.sync(p, s.Update(1))
		k.role(p, sdk.Active)
		if !counting() {
			k.Skip("needs a kernel and programs with nfacct")
		}
		before := sampled(p, accounts[localhostAccepted])
		port := portOf(k, s)
		for range 2 {
			k.eventually("a node port answers on 127.0.0.1", func() bool {
				return dialled(k.Context(), fmt.Sprint("127.0.0.1:", port)) == nil
			})
		}
		if after := sampled(p, accounts[localhostAccepted]); after < before+2 {
			k.Errorf("two connections to 127.0.0.1, and %v were counted", after-before)
		}
		// The rules are written anew, and the counts stay.
		k.run("iptables-"+string(k.backend), "-t", "filter", "-F", services)
		k.sync(p, s.Update(2))
		k.want(s, sdk.Active)
		if after := sampled(p, accounts[localhostAccepted]); after < before+2 {
			k.Errorf("after the rules were written anew the count is %v", after)
		}
		if gone, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil || counting() {
			k.Errorf("after a cleanup of %q the accounts are there: %v", gone, err)
		}
	})
}

// portOf is the node port of the first Service of s that has one.
func portOf(k kernel, s sdktest.Scenario) uint16 {
	for _, svc := range s.Services {
		for _, f := range svc.Frontends {
			if f.Kind == sdk.NodePort && svc.Name.Protocol == sdk.TCP && svc.Name.Family == sdk.IPv4 {
				return f.Addr.Port()
			}
		}
	}
	k.Fatal("no Service has a node port")
	return 0
}

// dialled opens a connection from the node itself.
func dialled(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, traffic.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", to)
	if err != nil {
		return err
	}
	return conn.Close()
}

// sampled is the value of one of the samples that p reports; -1: it is not among them.
func sampled(p *plugin, name string) float64 {
	for _, s := range p.Report().Samples {
		if s.Name == name {
			return s.Value
		}
	}
	return -1
}

// What is dropped counts by its reason.
func TestKernelCountsDrops(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		var last *plugin
		start := func() field.Dataplane {
			if last != nil {
				last.die()
			}
			last = k.start()
			return last
		}
		damage := func() {
			for _, program := range []string{"iptables-", "ip6tables-"} {
				k.run(program+string(k.backend), "-t", "filter", "-F", noEndpoint)
			}
		}
		field.Drops(k.T, g, start, damage, false)
		for _, program := range []string{"iptables-", "ip6tables-"} {
			if left := k.run(program+string(k.backend), "-t", "filter", "-S"); strings.Contains(left, "KUBE-NO-") || strings.Contains(left, foreignPort) {
				k.Errorf("after a cleanup there is %s", left)
			}
		}
	})
}

// What becomes of packets is told while it happens, if the kernel can trace them through the rules.
func TestKernelWatches(t *testing.T) {
	g := world(t)
	onKernel(t, func(k kernel) {
		p := k.start()
		if k.backend != iptables.Legacy {
			field.Watch(k.T, g, p, false)
			return
		}
		refusal := (*sdk.Refusal)(nil)
		if err := p.Watch(k.Context(), sdk.Packet{}, nil); !errors.As(err, &refusal) || !strings.Contains(refusal.Try, "pointsman_dropped_packets_total") {
			k.Errorf("of iptables-legacy: %v", err)
		}
	})
}
