// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// Kernel parameters are set before any Service is served, and Cleanup restores them.
func TestParametersAreSetAndRestored(t *testing.T) {
	l := newInstance(t)
	if _, err := l.plugin.Configure(t.Context(), sdk.Setup{Options: []byte(`{"strictARP":true,"tcpTimeout":"30m"}`)}); err != nil {
		t.Fatal(err)
	}
	l.full(many(1))
	set := map[string]string{
		"net/ipv4/vs/conntrack": "1", "net/ipv4/vs/expire_nodest_conn": "1", "net/ipv4/vs/expire_quiescent_template": "1",
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/arp_ignore": "1", "net/ipv4/conf/all/arp_announce": "2",
		"net/ipv4/vs/conn_reuse_mode": "0", // unchanged: this kernel's default is right
	}
	l.parameters(set)
	if _, err := l.plugin.Configure(t.Context(), sdk.Setup{}); err != nil {
		t.Fatal(err)
	}
	l.full(many(1))
	set["net/ipv4/conf/all/arp_ignore"], set["net/ipv4/conf/all/arp_announce"] = "0", "0" // the option is no longer set
	l.parameters(set)
	if first := l.fake.counted()[0]; !strings.HasPrefix(first, "timeouts {30m") {
		t.Errorf("the first request is %q", first)
	}
	if _, err := l.plugin.Cleanup(t.Context(), sdk.Leftovers{}); err != nil {
		t.Fatal(err)
	}
	for name := range set {
		set[name] = "0"
	}
	l.parameters(set)
}

func (l *instance) parameters(want map[string]string) {
	l.Helper()
	for name, value := range want {
		have, err := os.ReadFile(l.fake.folder + name)
		if err != nil || strings.TrimSpace(string(have)) != value {
			l.Errorf("%s is %q, %v, want %s", name, have, err, value)
		}
	}
}

// The timeouts are set once for both families, also on a node where only IPv6 has programs.
func TestSetsTimeoutsOnce(t *testing.T) {
	for _, usable := range [][]sdk.Family{families, {sdk.IPv6}} {
		f := newFake(t)
		l := &instance{T: t, fake: f, machine: f.edges(), dir: t.TempDir(), options: `{"udpTimeout": "10s"}`}
		l.machine.rules = func(context.Context, string, func(string)) (tools []iptables.Tool, err error) {
			for _, of := range usable {
				tools = append(tools, f.tool(of))
			}
			return tools, nil
		}
		l.begin()
		if _, err := l.trySync(many(1).Update(0)); err != nil {
			t.Error(err)
		}
		n := 0
		for _, request := range f.counted() {
			if strings.HasPrefix(request, "timeouts ") {
				n++
			}
		}
		if n != 1 {
			t.Errorf("with %v the timeouts were set %d times", usable, n)
		}
		l.end()
	}
}

// conn_reuse_mode is changed only on kernels whose default is wrong.
func TestHasPortReuseBug(t *testing.T) {
	for release, want := range map[string]bool{"": false, "4.19.0-25-amd64": true, "5.4.0": true, "5.9.0": false, "6.1.176": false, "5.10": false} {
		if got := hasPortReuseBug(release); got != want {
			t.Errorf("%s: %t", release, got)
		}
	}
}

// A virtual server in an excluded range is foreign, even if our sets name it.
func TestExcludedServersStay(t *testing.T) {
	l := start(t, many(2))
	kept := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("172.30.0.1:80")}
	l.options = `{"excludeCIDRs":["172.30.0.1/32"]}`
	l.restart()
	l.full(many(0))
	if len(l.fake.services) != 1 || l.fake.services[kept] == nil {
		t.Errorf("the virtual servers are %v", l.fake.services)
	}
}
