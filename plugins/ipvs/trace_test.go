// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// trace follows a packet through what the fake has. TestConforms holds each packet of each scenario to it.
func (f *fake) trace(_ context.Context, p sdk.Packet, foreign func(hooks.Server) bool) (sdk.Traced, error) {
	f.mu.Lock()
	of := sdk.FamilyOf(p.To.Addr())
	g := hooks.Given{
		Tables: make(iptables.Tables), Sets: f.member, Servers: f.printed(), Connections: f.templates(), Foreign: foreign,
	}
	local := map[netip.Addr]bool{p.From.Addr(): p.Origin == sdk.OnNode}
	maps.Copy(local, f.others)
	maps.Copy(local, f.ours)
	g.Local = func(a netip.Addr) bool { return local[a] || a.IsLoopback() }
	for id, rules := range f.tables[of] {
		g.Tables[id] = slices.Clone(rules)
	}
	f.mu.Unlock()
	return g.Trace(p)
}

// hexed is an address as the kernel lists it.
func hexed(a netip.Addr) string {
	if a.Is4() {
		return strings.ToUpper(hex.EncodeToString(a.AsSlice()))
	}
	return "[" + a.StringExpanded() + "]"
}

// printed are the virtual services as /proc/net/ip_vs has them.
func (f *fake) printed() string {
	var b strings.Builder
	for at, s := range f.services {
		if at.mark != 0 {
			fmt.Fprintf(&b, "FWM  %08X %s", at.mark, s.scheduling.scheduler)
		} else {
			fmt.Fprintf(&b, "%s  %s:%04X %s", strings.ToUpper(at.protocol.String()), hexed(at.addr.Addr()), at.addr.Port(), s.scheduling.scheduler)
		}
		if s.scheduling.affinity > 0 {
			fmt.Fprintf(&b, " persistent %d FFFFFFFF", s.scheduling.affinity)
		}
		b.WriteString("\n")
		for dest, weight := range s.dests {
			fmt.Fprintf(&b, "  -> %s:%04X      Masq    %d      0          0\n", hexed(dest.Addr()), dest.Port(), weight)
		}
	}
	return b.String()
}

// templates are the clients that are kept, as /proc/net/ip_vs_conn has them.
func (f *fake) templates() (lines []string) {
	bare := func(a netip.Addr) string { return strings.Trim(hexed(a), "[]") }
	for at, s := range f.services {
		for client, dest := range s.stuck {
			if s.scheduling.affinity == 0 {
				continue
			}
			protocol, to, port, destPort := "IP", fmt.Sprintf("%08X", at.mark), uint16(0), uint16(0)
			if at.mark == 0 {
				protocol, to, port, destPort = strings.ToUpper(at.protocol.String()), bare(at.addr.Addr()), at.addr.Port(), dest.Port()
			} else if client.Is6() {
				to = fmt.Sprintf("%04x:%04x:0000:0000:0000:0000:0000:0000", at.mark>>16, at.mark&0xffff)
			}
			lines = append(lines, fmt.Sprintf("%s %s 0000 %s %04X %s %04X NONE 100", protocol, bare(client), to, port, bare(dest.Addr()), destPort))
		}
	}
	return lines
}

const traced = `
-- services --
ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  external-ip   198.51.100.1:80
  node-port     30080
  endpoint      10.180.1.1:8080
  endpoint      10.180.1.2:8080
ns1/kept:http tcp
  affinity      10m
  cluster-ip    172.30.0.42:80
  endpoint      10.180.1.1:8080
  endpoint      10.180.1.2:8080
ns1/none:http tcp
  cluster-ip    172.30.0.43:80
ns1/near:http tcp
  cluster-ip    172.30.0.44:80
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.1.2:8080
-- packets --
10.180.0.9 > 172.30.0.43:80 = reject
`

// said is what is traced from one address to another, in words.
func (l *life) said(from, to string) string {
	l.Helper()
	p := sdk.Packet{Protocol: sdk.TCP, From: netip.AddrPortFrom(netip.MustParseAddr(from), 0), To: netip.MustParseAddrPort(to)}
	if l.fake.others[p.From.Addr()] {
		p.Origin = sdk.OnNode
	}
	t, err := l.plugin.Trace(l.Context(), p)
	if err != nil {
		l.Fatal(err)
	}
	if t.CannotTell != "" {
		return "cannot tell: " + t.CannotTell
	}
	var ways []string
	for _, w := range t.Ways {
		text := fmt.Sprintf("%s %s %.2g", w.Verdict, w.To, w.Share)
		if w.Masquerade {
			text += " masqueraded"
		}
		for _, r := range w.Rules {
			if rule, is := strings.CutPrefix(r, "IPVS, virtual service "); is {
				text += " by " + rule
			}
		}
		ways = append(ways, text)
	}
	return strings.Join(ways, ", ")
}

// What becomes of packets, by the virtual services, the sets and the rules.
func TestTrace(t *testing.T) {
	l := newLife(t)
	s, err := sdktest.Parse("test.txtar", []byte("In a test.\n"+traced))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.full(s); err != nil {
		t.Fatal(err)
	}
	l.role(sdk.Active)
	l.fake.own(netip.MustParseAddr("203.0.113.9"))
	other := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("203.0.113.9:443")}
	weighted := serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("172.30.0.41:80")}
	for at, dests := range map[serviceKey]map[string]int{other: {"10.9.9.9:443": 7}, weighted: {"10.180.1.3:8080": 0}} {
		if l.fake.services[at] == nil {
			_ = l.fake.SetService(at, scheduling{scheduler: "wlc"})
		}
		for dest, weight := range dests {
			_ = l.fake.AddDest(at, netip.MustParseAddrPort(dest), weight)
		}
	}
	l.fake.services[serviceKey{family: sdk.IPv4, protocol: sdk.TCP, addr: netip.MustParseAddrPort("172.30.0.42:80")}].stuck[netip.MustParseAddr("10.180.0.9")] = netip.MustParseAddrPort("10.180.1.2:8080")
	node := s.Node.Addrs[0].String()
	for _, tt := range []struct{ why, from, to, want string }{
		{"a pod", "10.180.0.9", "172.30.0.41:80", "forward 10.180.1.1:8080 0.5 by tcp 172.30.0.41:80 (rr): to 10.180.1.1:8080, forward 10.180.1.2:8080 0.5 by tcp 172.30.0.41:80 (rr): to 10.180.1.2:8080"},
		{"an endpoint that may find itself", "10.180.0.1", "172.30.0.44:80", "forward 10.180.0.1:8080 0.5 masqueraded by tcp 172.30.0.44:80 (rr): to 10.180.0.1:8080, forward 10.180.1.2:8080 0.5 by tcp 172.30.0.44:80 (rr): to 10.180.1.2:8080"},
		{"a pod of another node", "10.180.1.1", "172.30.0.44:80", "forward 10.180.0.1:8080 0.5 masqueraded by tcp 172.30.0.44:80 (rr): to 10.180.0.1:8080, forward 10.180.1.2:8080 0.5 masqueraded by tcp 172.30.0.44:80 (rr): to 10.180.1.2:8080"},
		{"outside", "192.0.2.7", "172.30.0.41:80", "forward 10.180.1.1:8080 0.5 masqueraded by tcp 172.30.0.41:80 (rr): to 10.180.1.1:8080, forward 10.180.1.2:8080 0.5 masqueraded by tcp 172.30.0.41:80 (rr): to 10.180.1.2:8080"},
		{"a node port", "192.0.2.7", node + ":30080", "forward 10.180.1.1:8080 0.5 masqueraded by tcp " + node + ":30080 (rr): to 10.180.1.1:8080, forward 10.180.1.2:8080 0.5 masqueraded by tcp " + node + ":30080 (rr): to 10.180.1.2:8080"},
		{"a client that is kept", "10.180.0.9", "172.30.0.42:80", "forward 10.180.1.2:8080 1 by tcp 172.30.0.42:80 (rr): to 10.180.1.2:8080"},
		{"another client", "10.180.0.8", "172.30.0.42:80", "forward 10.180.1.1:8080 0.5 by tcp 172.30.0.42:80 (rr): to 10.180.1.1:8080, forward 10.180.1.2:8080 0.5 by tcp 172.30.0.42:80 (rr): to 10.180.1.2:8080"},
		{"no endpoint", "10.180.0.9", "172.30.0.43:80", "reject 172.30.0.43:80 1 by tcp 172.30.0.43:80 (rr): no destination has weight"},
		{"no endpoint, from the node", node, "172.30.0.43:80", "reject 172.30.0.43:80 1 by tcp 172.30.0.43:80 (rr): no destination has weight"},
		{"an address of a Service, at no port of one", "192.0.2.7", "172.30.0.41:81", "reject 172.30.0.41:81 1"},
		{"another program's", "192.0.2.7", "203.0.113.9:443", "forward 10.9.9.9:443 1 by tcp 203.0.113.9:443 (wlc) of another program: to 10.9.9.9:443"},
		{"nothing", "192.0.2.7", node + ":22", "forward " + node + ":22 1"},
	} {
		if got := l.said(tt.from, tt.to); got != tt.want {
			t.Errorf("%s: %s to %s:\n%s\nwant\n%s", tt.why, tt.from, tt.to, got, tt.want)
		}
	}
	l.role(sdk.Standby)
	if got, want := l.said("192.0.2.7", "172.30.0.43:80"), "forward 172.30.0.43:80 1"; got != want {
		t.Errorf("in Standby:\n%s\nwant\n%s", got, want)
	}
}
