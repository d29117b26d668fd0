// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/flows"
	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// groupByRange replaces addresses in a ClusterIP range by the range. It leaves out addresses that another device has,
// too: these belong to the node itself.
func TestRanges(t *testing.T) {
	addrs := func(words string) map[netip.Addr]int {
		all := make(map[netip.Addr]int)
		for _, w := range strings.Fields(words) {
			all[netip.MustParseAddr(w)]++
		}
		return all
	}
	here := "10.96.0.1 10.96.0.10 203.0.113.7 169.254.7.7 192.0.2.10 fd00::1 fe80::1"
	got := groupByRange(sdk.IPv4, []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12")}, addrs(here), addrs(here+" 192.0.2.10 127.0.0.1"))
	want := []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("169.254.7.7/32"), netip.MustParsePrefix("203.0.113.7/32")}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := groupByRange(sdk.IPv6, nil, addrs(here), addrs(here)); len(got) != 1 || got[0].String() != "fd00::1/128" {
		t.Errorf("IPv6: got %v", got)
	}
}

// An address that an ipvs dataplane binds takes no node ports while it is bound, from the second read of the addresses
// on. The node's own addresses take node ports all the time.
func TestKernelBoundAddressesTakeNoNodePorts(t *testing.T) {
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

		const vip = "203.0.113.77"
		port := portOf(k, s)
		at := func(addr string) error {
			return dialFromNode(k.Context(), netip.AddrPortFrom(netip.MustParseAddr(addr), port).String())
		}
		k.run("ip", "link", "add", flows.IPVSDevice, "type", "bridge") // the ipvs mode uses a dummy device, which not every kernel supports
		k.Cleanup(func() { k.run("ip", "link", "del", flows.IPVSDevice) })
		k.eventually("the node's own address answers", func() bool { return at("192.0.2.10") == nil })
		k.run("ip", "address", "add", vip+"/32", "dev", flows.IPVSDevice)
		k.eventually("the bound address does not answer", func() bool { return at(vip) != nil })
		if err := at("192.0.2.10"); err != nil {
			k.Error("the node's own address does not answer any more: ", err)
		}
		for id, rules := range k.tables(sdk.IPv4) {
			if (id == nat(services) || id == filter(services)) && !slices.Contains(rules, "-d "+vip+"/32 -j RETURN") {
				k.Errorf("%s is %q", id, rules)
			}
		}
		k.run("ip", "address", "del", vip+"/32", "dev", flows.IPVSDevice)
		k.eventually("the rule is gone", func() bool { return !k.tables(sdk.IPv4).Has(nat(services), "-d "+vip+"/32 -j RETURN") })
		k.run("ip", "address", "add", vip+"/32", "dev", "lo")
		defer k.run("ip", "address", "del", vip+"/32", "dev", "lo")
		k.eventually("the address answers on another device", func() bool { return at(vip) == nil })
	})
}

// An address that only one read of the addresses has found causes no write, because an ipvs dataplane may be taking
// over.
func TestKernelBoundAddressNeedsTwoReads(t *testing.T) {
	onKernel(t, func(k kernel) {
		k.run("ip", "link", "add", flows.IPVSDevice, "type", "bridge")
		k.Cleanup(func() { k.run("ip", "link", "del", flows.IPVSDevice) })
		f := newFamily(iptables.Tool{Family: sdk.IPv4}, options{}, frame.Env{Log: slog.New(slog.DiscardHandler), Services: func() int { return 0 }})
		look := func() bool {
			f.addrsReadAt = time.Time{}
			return f.checkAddrs()
		}
		for _, step := range []struct {
			do   string // "add" or "del"
			addr string
			want bool
		}{
			{"add", "203.0.113.77", false},
			{"add", "203.0.113.78", false},
			{"", "", true},
			{"del", "203.0.113.78", false},
			{"del", "203.0.113.77", false},
			{"", "", false},
		} {
			if step.do != "" {
				k.run("ip", "address", step.do, step.addr+"/32", "dev", flows.IPVSDevice)
			}
			if got := look(); got != step.want {
				k.Errorf("after %s %s, checkAddrs returns %t", step.do, step.addr, got)
			}
		}
	})
}
