// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// a kernel of rules as iptables-save prints them, on a node that has 192.0.2.10, and no route to 203.0.113.0/24.
func kernelOf(t *testing.T, rules string) *kernel {
	t.Helper()
	tables, err := iptables.Read(strings.NewReader(rules))
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{
		blind: func(device string) error {
			if device == "tun0" {
				return unknownf("tun0 has a program")
			}
			return nil
		},
		route: func(_ trace.Packet, to netip.Addr) (route, error) {
			switch {
			case to == node:
				return route{local: true, out: "lo", verdict: trace.Accept}, nil
			case netip.MustParsePrefix("203.0.113.0/24").Contains(to):
				return route{verdict: trace.Reject, why: "no route"}, nil
			}
			return route{out: "eth1", verdict: trace.Accept}, nil
		},
	}
	r := ruleset{tool: iptables.Tool{Prefix: "iptables-legacy"}, tables: tables, tracer: trace.New(tables)}
	r.tracer.Member = func(set, parts string, p trace.Packet) (bool, error) {
		if set == "unread" {
			return false, errors.New("it cannot be read")
		}
		return set == "blocked" && parts == "src" && p.From.Addr() == netip.MustParseAddr("198.18.0.7"), nil
	}
	r.tracer.Drops = func(h trace.Hook) bool {
		return h == trace.Hook{Table: "filter", Chain: "FORWARD"} && strings.Contains(rules, "FORWARD DROP")
	}
	for id := range tables {
		if priority, own := priorities[id.Table][id.Chain]; own {
			k.stages = append(k.stages, stage{table: r.table(id), chain: id.Chain, at: chains[id.Chain], priority: priority, nat: id.Table == "nat", walk: r.walk(id)})
		}
	}
	k.sort()
	return k
}

var node = netip.MustParseAddr("192.0.2.10")

// ask traces a packet to a Service, and says its ways in words.
func ask(k *kernel, in, to string) string {
	from := netip.MustParseAddrPort("198.18.0.7:0")
	if in == "" {
		from = netip.AddrPortFrom(node, 0)
	}
	flows, err := k.trace(trace.Packet{Protocol: "tcp", From: from, To: netip.MustParseAddrPort(to), In: in, Local: func(a netip.Addr) bool { return a == node }})
	var unclear *unknown
	switch {
	case errors.As(err, &unclear):
		return "cannot tell: " + unclear.why
	case err != nil:
		return err.Error()
	}
	var ways []string
	for _, w := range traced(flows).Ways {
		text := fmt.Sprintf("%s %s %.2g", w.Verdict, w.To, w.Share)
		if w.Masquerade {
			text += " masqueraded"
		}
		if n := len(w.Rules); n > 0 && w.Verdict != 2 {
			text += " by " + w.Rules[n-1]
		}
		ways = append(ways, text)
	}
	return strings.Join(ways, ", ")
}

const balanced = `*nat
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
:POSTROUTING ACCEPT [0:0]
:SVC - [0:0]
-A PREROUTING -d 10.96.0.1/32 -j SVC
-A OUTPUT -d 10.96.0.1/32 -j SVC
-A POSTROUTING -m mark --mark 0x1/0x1 -j MASQUERADE
-A SVC -p tcp -m statistic --mode random --probability 0.25 -j DNAT --to-destination 10.0.0.1:80
-A SVC -p tcp -j DNAT --to-destination 192.0.2.10:8080
COMMIT
*mangle
:PREROUTING ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
-A PREROUTING -j MARK --set-xmark 0x1/0x1
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [0:0]
COMMIT
`

func TestWays(t *testing.T) {
	with := func(rule string) string { return balanced + "*filter\n" + rule + "\nCOMMIT\n" }
	for _, tt := range []struct{ why, rules, in, to, want string }{
		{"to an endpoint, or to the node's own", balanced, "eth0", "10.96.0.1:80", "forward 10.0.0.1:80 0.25 masqueraded, forward 192.0.2.10:8080 0.75"},
		{"from the node, marked too late to be masqueraded", balanced, "", "10.96.0.1:80", "forward 10.0.0.1:80 0.25, forward 192.0.2.10:8080 0.75"},
		{"to no Service", balanced, "eth0", "10.96.0.2:80", "forward 10.96.0.2:80 1 masqueraded"},
		{"nowhere", balanced, "eth0", "203.0.113.9:80", "reject 203.0.113.9:80 1 by no route"},
		{"the node, nowhere", balanced, "", "203.0.113.9:80", "reject 203.0.113.9:80 1 by no route"},
		{"one endpoint is kept from it", with("-A FORWARD -d 10.0.0.1/32 -o eth1 -j DROP"), "eth0", "10.96.0.1:80",
			"drop 10.0.0.1:80 0.25 by iptables-legacy, table filter, chain FORWARD, rule 1: -d 10.0.0.1/32 -o eth1 -j DROP, forward 192.0.2.10:8080 0.75"},
		{"the other one is", with("-A INPUT -m conntrack --ctorigdst 10.96.0.1/32 -j REJECT --reject-with tcp-reset"), "eth0", "10.96.0.1:80",
			"forward 10.0.0.1:80 0.25 masqueraded, reject 192.0.2.10:8080 0.75 by iptables-legacy, table filter, chain INPUT, rule 1: -m conntrack --ctorigdst 10.96.0.1/32 -j REJECT --reject-with tcp-reset"},
		{"what the node sends itself comes in by lo", with("-A INPUT ! -i lo -j DROP"), "", "192.0.2.10:22", "forward 192.0.2.10:22 1"},
		{"a policy", strings.Replace(balanced, "FORWARD ACCEPT", "FORWARD DROP", 1), "eth0", "10.96.0.2:80", "drop 10.96.0.2:80 1 by iptables-legacy, table filter, chain FORWARD: policy DROP"},
		{"a rule beyond the tracer", with("-A FORWARD -d 10.0.0.0/8 -m bpf --bytecode 1 -j DROP"), "eth0", "10.96.0.1:80",
			`cannot tell: iptables-legacy, table filter, chain FORWARD: the rule "-d 10.0.0.0/8 -m bpf --bytecode 1 -j DROP": the tracer does not know the match "bpf"`},
		{"one that the packet does not come to", with("-A FORWARD -d 172.16.0.0/12 -m bpf --bytecode 1 -j DROP"), "eth0", "10.96.0.2:80", "forward 10.96.0.2:80 1 masqueraded"},
		{"a foreign set", with("-A FORWARD -m set --match-set blocked src -j DROP"), "eth0", "10.96.0.2:80",
			`drop 10.96.0.2:80 1 by iptables-legacy, table filter, chain FORWARD, rule 1: -m set --match-set blocked src -j DROP`},
		{"a foreign set that lacks it", with("-A FORWARD -m set --match-set blocked dst -j DROP"), "eth0", "10.96.0.2:80", "forward 10.96.0.2:80 1 masqueraded"},
		{"a foreign set that must have it", with("-A FORWARD -m set ! --match-set blocked dst -j DROP"), "eth0", "10.96.0.2:80",
			`drop 10.96.0.2:80 1 by iptables-legacy, table filter, chain FORWARD, rule 1: -m set ! --match-set blocked dst -j DROP`},
		{"a foreign set that is not understood", with("-A FORWARD -m set --match-set unread src -j DROP"), "eth0", "10.96.0.2:80",
			`cannot tell: iptables-legacy, table filter, chain FORWARD: the rule "-m set --match-set unread src -j DROP": it cannot be read`},
		{"the caller's port", with("-A FORWARD -p tcp -m tcp --sport 1024:65535 -j DROP"), "eth0", "10.96.0.2:80",
			`cannot tell: iptables-legacy, table filter, chain FORWARD: the rule "-p tcp -m tcp --sport 1024:65535 -j DROP": it asks for the caller's port, which is not known`},
		{"several ports, and the first packet's flags", with("-A FORWARD -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m multiport --dports 22,80:90 -j DROP"), "eth0", "10.96.0.2:80",
			"drop 10.96.0.2:80 1 by iptables-legacy, table filter, chain FORWARD, rule 1: -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m multiport --dports 22,80:90 -j DROP"},
		{"conntrack, before it", strings.Replace(balanced, "*mangle", "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -m conntrack --ctstate NEW -j DROP\nCOMMIT\n*mangle", 1), "eth0", "10.96.0.2:80",
			`cannot tell: iptables-legacy, table raw, chain PREROUTING: the rule "-m conntrack --ctstate NEW -j DROP": it asks conntrack, to which the packet comes later`},
		{"a mask with gaps", with("-A FORWARD -d 10.96.0.2/255.0.255.255 -j DROP"), "eth0", "10.96.0.2:80",
			`cannot tell: iptables-legacy, table filter, chain FORWARD: the rule "-d 10.96.0.2/255.0.255.255 -j DROP": netip.ParsePrefix("10.96.0.2/255.0.255.255"): bad bits after slash: "255.0.255.255"`},
		{"an interface with a program", balanced, "tun0", "10.96.0.2:80", "cannot tell: tun0 has a program"},
	} {
		if got := ask(kernelOf(t, tt.rules), tt.in, tt.to); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.why, got, tt.want)
		}
	}
}

// Where one chain of nat has translated a packet, no other one at that hook is asked, whatever program made it.
func TestOneTranslation(t *testing.T) {
	k := kernelOf(t, balanced)
	asked := 0
	for _, priority := range []int32{-101, -99} {
		k.stages = append(k.stages, stage{table: "mine", chain: "c", at: nftnl.PreRouting, priority: priority, nat: true, walk: func(p trace.Packet) ([]trace.Path, error) {
			asked++
			return []trace.Path{{Verdict: trace.Accept, To: p.Destination(), Translated: p.Translated.IsValid(), Chance: 1, Mark: p.Mark}}, nil
		}})
	}
	k.sort()
	if got := ask(k, "eth0", "10.96.0.1:80"); asked != 1 || !strings.HasPrefix(got, "forward 10.0.0.1:80 0.25") {
		t.Errorf("asked %d times: %s", asked, got)
	}
}

func TestRemembers(t *testing.T) {
	const list = "src=198.18.0.7 ttl: 64 last_seen: 4295060160 oldest_pkt: 1 4295060160\nsrc=fd00:0000:0000:0000:0000:0000:0000:0007 ttl: 0 last_seen: 1 oldest_pkt: 1 1\n"
	for addr, want := range map[string]bool{"198.18.0.7": true, "198.18.0.8": false, "fd00::7": true} {
		if remembers(list, netip.MustParseAddr(addr)) != want {
			t.Errorf("%s: %t", addr, !want)
		}
	}
}
