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

// Connections to a node port on 127.0.0.1 are counted under kube-proxy's names. Cleanup removes the accounts.
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
		before := sampleValue(p, accounts[localhostAccepted])
		port := portOf(k, s)
		for range 2 {
			k.eventually("a node port answers on 127.0.0.1", func() bool {
				return dialFromNode(k.Context(), fmt.Sprint("127.0.0.1:", port)) == nil
			})
		}
		if after := sampleValue(p, accounts[localhostAccepted]); after < before+2 {
			k.Errorf("%v of two connections to 127.0.0.1 were counted", after-before)
		}
		// The counts survive a rewrite of the rules.
		k.run("iptables-"+string(k.backend), "-t", "filter", "-F", services)
		k.sync(p, s.Update(2))
		k.want(s, sdk.Active)
		if after := sampleValue(p, accounts[localhostAccepted]); after < before+2 {
			k.Errorf("after the rules were rewritten, the count is %v", after)
		}
		if gone, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil || counting() {
			k.Errorf("after Cleanup removed %q, the accounts still exist: %v", gone, err)
		}
	})
}

// portOf returns the node port of the first Service of s that has one.
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

// dialFromNode opens a connection from the node itself and closes it.
func dialFromNode(ctx context.Context, to string) error {
	ctx, cancel := context.WithTimeout(ctx, traffic.Timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp4", to)
	if err != nil {
		return err
	}
	return conn.Close()
}

// sampleValue returns the value of a sample that p reports, or -1 if there is none.
func sampleValue(p *plugin, name string) float64 {
	for _, s := range p.Report().Samples {
		if s.Name == name {
			return s.Value
		}
	}
	return -1
}

// Dropped packets are counted by reason.
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
	})
}

// Watch reports what happens to packets while they pass, if the kernel can trace them through the rules.
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
			k.Errorf("Watch with iptables-legacy: %v", err)
		}
	})
}
