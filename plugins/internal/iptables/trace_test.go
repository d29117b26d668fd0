// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/oracle"
)

// tables reads rules from a short form of what iptables-save prints.
func tables(t *testing.T, text string) Tables {
	t.Helper()
	all, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func web(from string, in string) oracle.Packet {
	node := netip.MustParseAddr("192.0.2.10")
	return oracle.Packet{Protocol: "tcp", From: netip.AddrPortFrom(netip.MustParseAddr(from), 4000), To: netip.MustParseAddrPort("10.96.0.1:80"), In: in,
		Local: func(a netip.Addr) bool { return a == node }}
}

// trace returns the paths of a packet through a node that has only these rules.
func trace(t *testing.T, rules string, p oracle.Packet) ([]oracle.Path, error) {
	t.Helper()
	return oracle.Node{Bases: oracle.IPTables(tables(t, rules)).Bases()}.Walk(p)
}

func TestTrace(t *testing.T) {
	const rules = `*nat
:S - [0:0]
-A PREROUTING -j S
-A OUTPUT -j S
-A POSTROUTING -m mark --mark 0x4000/0x4000 -j MASQUERADE
-A S -d 10.96.0.2/32 -j DNAT --to-destination 10.0.0.9:1
-A S ! -s 10.180.0.0/16 -d 10.96.0.1/32 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4000/0x4000
-A S -d 10.96.0.1/32 -p tcp -m statistic --mode random --probability 0.25000000000 -j DNAT --to-destination 10.0.0.1:8080
-A S -d 10.96.0.1/32 -p tcp -j DNAT --to-destination 10.0.0.2:8080
COMMIT
*filter
-A FORWARD -s 203.0.113.0/24 -m conntrack --ctstate NEW -j DROP
-A FORWARD -i eth9 -j REJECT --reject-with icmp-port-unreachable
COMMIT
`
	for _, c := range []struct {
		why, from, in string
		want          string
	}{
		{"from elsewhere", "198.51.100.1", "eth0", "ACCEPT 10.0.0.1:8080 0.25 masquerade, ACCEPT 10.0.0.2:8080 0.75 masquerade"},
		{"from a pod", "10.180.0.1", "eth0", "ACCEPT 10.0.0.1:8080 0.25, ACCEPT 10.0.0.2:8080 0.75"},
		{"from the node", "192.0.2.10", "", "ACCEPT 10.0.0.1:8080 0.25 masquerade, ACCEPT 10.0.0.2:8080 0.75 masquerade"},
		{"dropped", "203.0.113.1", "eth0", "DROP 10.0.0.1:8080 0.25, DROP 10.0.0.2:8080 0.75"},
		{"rejected", "10.180.0.1", "eth9", "REJECT 10.0.0.1:8080 0.25, REJECT 10.0.0.2:8080 0.75"},
	} {
		paths, err := trace(t, rules, web(c.from, c.in))
		if err != nil {
			t.Errorf("%s: %v", c.why, err)
		}
		var got []string
		for _, p := range paths {
			text := string(p.Verdict) + " " + p.To.String() + " " + strings.TrimRight(strings.TrimRight(Share(int(math.Round(p.Chance*100)), 100), "0"), ".")
			if p.Masquerade {
				text += " masquerade"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, ", "); text != c.want {
			t.Errorf("%s: %s; want %s", c.why, text, c.want)
		}
	}
}

// A packet that no rule of a chain matches returns from a jump, and not from a goto.
func TestTraceJumpAndGoto(t *testing.T) {
	for how, verdict := range map[string]oracle.Verdict{"-j": oracle.Drop, "-g": oracle.Accept} {
		rules := "*filter\n:A - [0:0]\n:B - [0:0]\n-A FORWARD -j A\n-A A " + how + " B\n-A A -j DROP\n-A B -s 1.2.3.4/32 -j REJECT --reject-with icmp-port-unreachable\nCOMMIT\n"
		paths, err := trace(t, rules, web("198.51.100.1", "eth0"))
		if err != nil || len(paths) != 1 || paths[0].Verdict != verdict {
			t.Errorf("%s: %v, %v; want %s", how, paths, err, verdict)
		}
	}
}

// The oracle returns an error for a rule that it does not understand.
func TestTraceUnknownRule(t *testing.T) {
	for _, rule := range []string{"-m bpf --bytecode 1 -j DROP", "-j NFQUEUE", "-j NOWHERE", "-p tcp --what 1 -j DROP"} {
		if _, err := trace(t, "*filter\n-A FORWARD "+rule+"\nCOMMIT\n", web("198.51.100.1", "eth0")); err == nil {
			t.Errorf("%q: no error", rule)
		}
	}
	const logs = "*filter\n-A FORWARD -m limit --limit 3/min -j LOG\n-A FORWARD -j DROP\nCOMMIT\n"
	if paths, err := trace(t, logs, web("198.51.100.1", "eth0")); err != nil || paths[0].Verdict != oracle.Drop {
		t.Errorf("a rule that only logs is not passed over: %v, %v", paths, err)
	}
}
