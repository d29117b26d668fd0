// SPDX-License-Identifier: Apache-2.0

package nftables

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/field"
	"github.com/pointsman/pointsman/test/traffic"
)

// Node ports answer on 127.0.0.1 only if the option asks for it. In every role, the guard exists while the kernel
// routes 127.0.0.0/8.
func TestKernelLocalhostNodePorts(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		s.Services[0].Affinity = 0
		stage, err := g.Open(k.Context(), nil, s)
		if err != nil {
			k.Fatal(err)
		}
		defer stage.Close()
		call := func() error {
			ctx, cancel := context.WithTimeout(k.Context(), traffic.Timeout)
			defer cancel()
			conn, err := g.Node().Dial(ctx, "tcp", netip.MustParseAddr("127.0.0.1"), netip.MustParseAddrPort("127.0.0.1:30080"))
			if err == nil {
				conn.Close()
			}
			return err
		}
		for _, asked := range []bool{false, true} {
			p := New(k.dir).(*plugin)
			options := strings.Replace(string(k.options()), "}", `,"localhostNodePorts":true}`, 1)
			if !asked {
				options = string(k.options())
			}
			if _, err := p.Configure(k.Context(), sdk.Setup{Options: []byte(options)}); err != nil {
				k.Fatal(err)
			}
			k.sync(p, s.Update(1))
			k.role(p, sdk.Active)
			if err := call(); (err == nil) != asked {
				k.Errorf("localhostNodePorts %t: dial 127.0.0.1: %v", asked, err)
			}
			for _, role := range []sdk.Role{sdk.Standby, sdk.Draining, sdk.Active} {
				k.role(p, role)
				routed, err := os.ReadFile(sysctl.RouteLocalnet)
				if err != nil {
					k.Fatal(err)
				}
				guarded := strings.Contains(k.nft("list", "table", "ip", table), "chain guard")
				if strings.TrimSpace(string(routed)) == "1" && !guarded || guarded != asked {
					k.Errorf("localhostNodePorts %t, %s: route_localnet is %s, guarded %t", asked, role, routed, guarded)
				}
			}
			if _, err := p.Cleanup(k.Context(), sdk.Leftovers{}); err != nil {
				k.Fatal(err)
			}
			if routed, _ := os.ReadFile(sysctl.RouteLocalnet); strings.TrimSpace(string(routed)) != "0" {
				k.Errorf("after Cleanup route_localnet is %s", routed)
			}
			p.die()
		}
	})
}

// A change of the node's configuration changes a few small chains and nothing else.
func TestKernelNodeChanges(t *testing.T) {
	g := field.Testbed(t)
	onKernel(t, func(k kernel) {
		s := k.place(g, sticking)
		p, _ := k.active(g, s)
		node := s.Node
		for i, c := range []struct {
			change func(*sdk.Node)
			line   string
		}{
			{func(n *sdk.Node) { n.Pods = sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24")}} }, "ip saddr 10.180.0.0/24 jump near"},
			{func(n *sdk.Node) { n.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")} }, "ct state new ip daddr 10.96.0.0/12 goto foreign-port"},
			{func(n *sdk.Node) { n.Conntrack.TCPBeLiberal = true }, "chain invalid {\n\t}"},
		} {
			next := node
			c.change(&next)
			before := p.families[0].kernel.commits.Load()
			k.sync(p, sdk.Update{From: uint64(i + 1), To: uint64(i + 2), Node: &next})
			if text := k.nft("list", "table", "ip", table); !strings.Contains(text, c.line) {
				k.Errorf("missing %q in\n%s", c.line, text)
			}
			if n := p.families[0].kernel.commits.Load() - before; n > 2 {
				k.Errorf("%q took %d batches", c.line, n)
			}
		}
	})
}
