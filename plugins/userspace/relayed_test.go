// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A traceable is a relay with its sockets and rules on a node that 192.0.2.10 is an address of. Nothing is
// written to a kernel.
type traceable struct {
	*testing.T
	*plugin
	given hooks.Given
	red   *redirected
	gone  bool // no socket is there
}

func newTraceable(t *testing.T, services ...sdk.Service) *traceable {
	w := &traceable{T: t, plugin: newPlugin(t.TempDir())}
	t.Cleanup(func() { w.plugin.Close() })
	facts := sdk.Node{
		Addrs: addrs("192.0.2.10"), NodePorts: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}, MasqueradeBit: 14,
		Pods: sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24")}},
	}
	w.relay.SetNode(facts, map[netip.Addr]bool{facts.Addrs[0]: true})
	w.way = way{backend: "nft", portals: w.relay.NewRedirected()}
	w.red = newRedirected(&w.plugin.process, iptables.Tool{Family: sdk.IPv4}, w.way.portals, nil)
	w.way.families = []family{w.red}
	w.red.bound = netip.MustParseAddr("127.0.0.1") // as rules have it here too: this machine need not have another
	scene := newScene(facts, nil)
	rules := scene.rules[sdk.IPv4]
	rules.node.to = w.red.bound
	for i := range services {
		services[i].Normalize()
		w.serve(rules, &services[i])
	}
	rules.node.doors = w.way.portals.Ports(sdk.IPv4)
	rules.node.matchesSockets = true
	w.relay.SetMark(rules.node.mark())
	w.given = hooks.Given{
		Tables: scene.tables(sdk.IPv4, sdk.Active),
		Local:  func(a netip.Addr) bool { return a == facts.Addrs[0] || a.IsLoopback() },
		Socket: func(netip.AddrPort) bool { return !w.gone },
		Sends:  facts.Addrs[0],
	}
	return w
}

// serve opens the sockets of a Service, and puts its rules.
func (w *traceable) serve(rules *familyRules, svc *sdk.Service) {
	w.Helper()
	service := relay.NewService(*svc)
	for _, f := range svc.Frontends {
		c := catch{node: &rules.node, service: svc, frontend: f}
		if len(svc.Cluster) > 0 {
			var s relay.Socket
			var err error
			if svc.Name.Protocol == sdk.UDP {
				s, err = w.way.portals.ListenUDP(w.T.Context(), f.Addr, w.red.bound)
			} else {
				s, err = w.way.portals.ListenTCP(w.T.Context(), f.Addr)
			}
			if err != nil {
				w.Fatal(err)
			}
			w.red.open[place{svc.Name.Protocol, f.Addr}], c.udp = s, s.Port()
			s.Serve(&relay.Target{Service: service, Frontend: f})
		}
		rules.Put(key{caught: place{svc.Name.Protocol, f.Addr}}, c.desired())
	}
	if svc.Affinity > 0 {
		service.ImportAffinity([]sdk.AffinityEntry{{Client: netip.MustParseAddr("10.180.0.9"), Endpoint: svc.Cluster[0].Addr, Left: time.Hour}}, time.Now())
	}
}

// with adds a foreign rule at the top of a chain.
func (w *traceable) with(table, chain string, rule iptables.Rule) {
	id := iptables.ID{Table: table, Chain: chain}
	w.given.Tables[id] = slices.Insert(slices.Clone(w.given.Tables[id]), 0, rule)
}

// says is what is said of a packet, in words: the ways, and the last rule of one that is turned away.
func (w *traceable) says(p *plugin, from, to string) string {
	w.Helper()
	at, isUDP := strings.CutSuffix(to, "/udp")
	packet := sdk.Packet{Protocol: sdk.TCP, From: netip.AddrPortFrom(netip.MustParseAddr(from), 0), To: netip.MustParseAddrPort(at)}
	if isUDP {
		packet.Protocol = sdk.UDP
	}
	if w.given.Local(packet.From.Addr()) {
		packet.Origin = sdk.OnNode
	}
	t, err := p.traceOn(w.given, packet, func(look func()) error { look(); return nil })
	if err != nil {
		return hooks.Unclear(err)
	}
	if t.CannotTell != "" {
		return "cannot tell: " + t.CannotTell
	}
	var all []string
	for _, way := range t.Ways {
		text := fmt.Sprintf("%s %s %.3g", way.Verdict, way.To, way.Share)
		if way.Masquerade {
			text += " masqueraded"
		}
		if last := way.Rules; len(last) > 0 && strings.HasPrefix(last[len(last)-1], "the relay is not") {
			text += " by " + last[len(last)-1]
		}
		if way.Verdict != sdk.Forward {
			text = fmt.Sprintf("%s %.3g by %s", way.Verdict, way.Share, way.Rules[len(way.Rules)-1])
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

// What a caller comes to: by the rules, the relay's table, and the way from there to the endpoints.
func TestTraceRedirected(t *testing.T) {
	web := svc("web", "cluster-ip 172.30.0.41:80, external-ip 198.51.100.1:80 local, load-balancer 198.51.100.2:80, node-port 0.0.0.0:30080", "10.180.0.1:8080 10.180.1.1:8080")
	web.Cluster[0].OnNode = true
	web.Local = web.Cluster[:1]
	web.Frontends[2].Sources = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
	kept := svc("kept", "cluster-ip 172.30.0.42:80", "10.180.0.1:8080 10.180.1.1:8080")
	kept.Affinity = time.Hour
	none := svc("none", "cluster-ip 172.30.0.43:80", "")
	dns := udp(svc("dns", "cluster-ip 172.30.0.10:53", "10.180.1.2:53 10.180.1.3:53"))
	const both = "forward 10.180.0.1:8080 0.5 masqueraded, forward 10.180.1.1:8080 0.5 masqueraded"
	for _, tt := range []struct {
		why, rule, from, to, want string
	}{
		{"a pod", "", "10.180.0.9", "172.30.0.41:80", both},
		{"the node", "", "192.0.2.10", "172.30.0.41:80", both},
		{"a node port", "", "198.18.0.7", "192.0.2.10:30080", both},
		{"a policy of Local, from elsewhere", "", "198.18.0.7", "198.51.100.1:80", "forward 10.180.0.1:8080 1 masqueraded"},
		{"and from a pod", "", "10.180.0.9", "198.51.100.1:80", both},
		{"a source range", "", "198.18.0.7", "198.51.100.2:80", both},
		{"outside of it", "", "203.0.113.7", "198.51.100.2:80", "drop 1 by iptables, table filter, chain KUBE-PORTALS-VIP"},
		{"a client that is kept", "", "10.180.0.9", "172.30.0.42:80", "forward 10.180.0.1:8080 1 masqueraded"},
		{"and another", "", "10.180.0.8", "172.30.0.42:80", both},
		{"no endpoint", "", "10.180.0.9", "172.30.0.43:80", "reject 1 by iptables, table filter, chain KUBE-PORTALS-VIP"},
		{"UDP", "", "10.180.0.9", "172.30.0.10:53/udp", "forward 10.180.1.2:53 0.5 masqueraded, forward 10.180.1.3:53 0.5 masqueraded"},
		{"no Service", "", "10.180.0.9", "192.0.2.10:22", "forward 192.0.2.10:22 1"},
		{"forwarding matters to none", "filter FORWARD -j DROP", "198.18.0.7", "172.30.0.41:80", both},
		{"the relay gets nothing", "filter INPUT -s 198.18.0.7/32 -j DROP", "198.18.0.7", "172.30.0.41:80", "drop 1 by iptables, table filter, chain INPUT, rule 1: -s 198.18.0.7/32 -j DROP"},
		{"an endpoint is not reached", "filter OUTPUT -d 10.180.1.1/32 -j DROP", "10.180.0.9", "172.30.0.41:80", "forward 10.180.0.1:8080 1 masqueraded"},
		{"that a client keeps", "filter OUTPUT -d 10.180.0.1/32 -j REJECT", "10.180.0.9", "172.30.0.42:80", "forward 10.180.1.1:8080 1 masqueraded"},
		{"none is", "filter OUTPUT -p tcp -m tcp --dport 8080 -j DROP", "10.180.0.9", "172.30.0.41:80", "reject 1 by iptables, table filter, chain OUTPUT, rule 1: -p tcp -m tcp --dport 8080 -j DROP"},
		{"none of UDP is", "filter OUTPUT -p udp -j DROP", "10.180.0.9", "172.30.0.10:53/udp", "drop 1 by iptables, table filter, chain OUTPUT, rule 1: -p udp -j DROP"},
		{"another is translated", "nat OUTPUT -d 10.180.1.1/32 -p tcp -j DNAT --to-destination 10.9.9.9:1", "10.180.0.9", "198.51.100.1:80", "forward 10.9.9.9:1 0.5 masqueraded, forward 10.180.0.1:8080 0.5 masqueraded"},
		{"by the relay's mark", "filter OUTPUT -m mark --mark 0x2000/0x2000 -d 10.180.1.1/32 -j DROP", "192.0.2.10", "172.30.0.41:80", "forward 10.180.0.1:8080 1 masqueraded"},
		{"a rule to the relay that is not known", "filter OUTPUT -m odd -j DROP", "198.18.0.7", "172.30.0.41:80", `cannot tell: from the relay to 10.180.0.1:8080: iptables, table filter, chain OUTPUT: the rule "-m odd -j DROP": the tracer does not know the match "odd"`},
		{"another source address", "nat POSTROUTING -j MASQUERADE", "192.0.2.10", "172.30.0.41:80", both},
		{"by which a Service chooses", "nat POSTROUTING -j MASQUERADE", "192.0.2.10", "172.30.0.42:80", "cannot tell: the relay"},
	} {
		w := newTraceable(t, web, kept, none, dns)
		if table, rest, is := strings.Cut(tt.rule, " "); is {
			chain, rule, _ := strings.Cut(rest, " ")
			w.with(table, chain, iptables.Rule(rule))
		}
		if got := w.says(w.plugin, tt.from, tt.to); got != tt.want && (!strings.HasSuffix(tt.want, "VIP") && !strings.HasSuffix(tt.want, "the relay") || !strings.HasPrefix(got, tt.want)) {
			t.Errorf("%s:\n%s\nwant\n%s", tt.why, got, tt.want)
		}
	}
}

// Where rules lead to a port that is none of this process: what is not there refuses, what is there is unknown.
func TestTraceWithoutSocket(t *testing.T) {
	w := newTraceable(t, svc("web", "cluster-ip 172.30.0.41:80", "10.180.0.1:8080"), udp(svc("dns", "cluster-ip 172.30.0.10:53", "10.180.0.1:53")))
	other := newPlugin(t.TempDir())
	t.Cleanup(func() { other.Close() })
	got := []string{w.says(other, "10.180.0.9", "172.30.0.41:80"), w.says(other, "10.180.0.9", "172.30.0.10:53/udp")}
	w.with("nat", toAny.Chain, "-p tcp -j DNAT --to-destination 192.0.2.99:1000") // as where the node has lost the address
	if left := w.says(w.plugin, "10.180.0.9", "172.30.0.41:80"); left != "forward 192.0.2.99:1000 1 by the relay is not reached: this node has not got the address 192.0.2.99" {
		t.Error(left)
	}
	w.given.Tables[toAny] = w.given.Tables[toAny][1:]
	w.gone = true
	got = append(got, w.says(other, "10.180.0.9", "172.30.0.41:80"), w.says(other, "10.180.0.9", "172.30.0.10:53/udp"))
	w.with("filter", ownSocket.Chain, "-m conntrack --ctstate DNAT -j ACCEPT") // as where the kernel cannot match sockets
	got = append(got, w.says(other, "10.180.0.9", "172.30.0.41:80"))
	for i, want := range []string{
		"cannot tell: tcp 127.0.0.1:PORT is a socket of another process, which alone knows its endpoints (ss -tlnp sport = :PORT shows which)",
		"cannot tell: udp 127.0.0.1:PORT is a socket of another process, which alone knows its endpoints (ss -ulnp sport = :PORT shows which)",
		"drop 1 by iptables, table filter, chain KUBE-PORTALS-OWN, rule 2: -p tcp -m conntrack --ctstate DNAT -j DROP",
		"reject 1 by no socket is there for udp 127.0.0.1:PORT",
		"reject 1 by no socket is there for tcp 127.0.0.1:PORT",
	} {
		if said := regexp.MustCompile(`:\d{4,}`).ReplaceAllString(got[i], ":PORT"); said != want {
			t.Errorf("%s\nwant\n%s", said, want)
		}
	}
}

// Without rules the sockets are at the frontends' addresses, and an address of the node says that a caller is there.
func TestTraceDirect(t *testing.T) {
	front, back, silent := at(1, 8000), at(2, 8000), at(1, 8001)
	limited := svc("limited", "load-balancer "+at(1, 8002), back)
	limited.Frontends[0].Sources = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}
	s := onStage(t, svc("web", "cluster-ip "+front, back), svc("none", "cluster-ip "+silent, ""), limited)
	w := &traceable{T: t, given: hooks.Given{
		Local: netip.Addr.IsLoopback, Socket: func(netip.AddrPort) bool { return false }, Sends: netip.MustParseAddr("127.0.0.1"),
	}}
	from := addrPortOf(front).Addr().String()
	for _, tt := range []struct{ why, from, to, want string }{
		{"a Service", from, front, "forward " + back + " 1 masqueraded"},
		{"from elsewhere", "198.18.0.7", front, "forward " + back + " 1 masqueraded"},
		{"no endpoint", from, silent, "reject 1 by no socket is there for tcp " + silent},
		{"outside of its sources", "198.18.0.7", at(1, 8002), "reject 1 by the relay, tcp " + at(1, 8002) + ": ns1/limited/tcp4 lets this caller in to no endpoint"},
		{"no Service", from, at(1, 8003), "forward " + at(1, 8003) + " 1"},
	} {
		if got := w.says(s.plugin, tt.from, tt.to); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.why, got, tt.want)
		}
	}
}

// A process without rights says so, as one that has not got the call: no host takes that for an answer.
func TestTraceWithoutRights(t *testing.T) {
	_, err := answered(sdk.Traced{}, fmt.Errorf("list: %w", syscall.EPERM))
	if !errors.Is(err, wire.ErrUnsupported) || !strings.Contains(err.Error(), "may not read the kernel's rules") {
		t.Error(err)
	}
	if _, err := answered(sdk.Traced{}, fmt.Errorf("list: %w", errors.ErrUnsupported)); !errors.Is(err, wire.ErrUnsupported) {
		t.Errorf("on another system than Linux: %v", err)
	}
	if _, err := answered(sdk.Traced{}, syscall.ENOMEM); err == nil || errors.Is(err, wire.ErrUnsupported) {
		t.Error(err)
	}
}
