// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/field"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A fault is a rule or route of another program, in the syntax of each tool. SRC, SERVICE, FIRST and SECOND are
// replaced by the addresses of the caller, the Service and its endpoints.
type fault struct{ iptables, nft string }

// common are faults that affect packets to the Service. Packets from outside arrive on eth7.
var common = []fault{
	{"-t filter -I FORWARD -s SRC -j DROP", "forward ip saddr SRC drop"},
	{"-t filter -I FORWARD -d FIRST -j DROP", "forward ip daddr FIRST drop"},
	{"-t filter -I FORWARD -p tcp --dport 8080 -j REJECT", "forward tcp dport 8080 reject"},
	{"-t filter -I FORWARD -i eth7 -j DROP", `forward iifname "eth7" drop`},
	{"-t filter -I FORWARD ! -o uplink -d SECOND -j REJECT", `forward oifname != "uplink" ip daddr SECOND reject`},
	{"-t filter -I OUTPUT -p tcp -m multiport --dports 79:80,8080 -j DROP", "output tcp dport { 79-80, 8080 } drop"},
	{"-t filter -P FORWARD DROP", "policy forward"},
	{"-t filter -I FORWARD -m conntrack --ctstate NEW,DNAT -j REJECT", "forward ct status dnat reject"},
	{"-t raw -I PREROUTING -s SRC -j DROP", "early ip saddr SRC drop"},
	{"-t mangle -I PREROUTING -s SRC -j MARK --set-mark 7", "early ip saddr SRC meta mark set 7"},
	{"-t filter -I FORWARD -m mark --mark 7 -j DROP", "forward meta mark 7 drop"},
	{"-t nat -I PREROUTING -s SRC -d SERVICE -p tcp -j DNAT --to-destination [SECOND]:8080", "pre ip saddr SRC ip daddr SERVICE tcp dport 80 dnat to [SECOND]:8080"},
	{"-t nat -F PREROUTING", "flush pre"},
	{"route add unreachable FIRST", ""},
	{"route add blackhole SECOND", ""},
}

// words returns a Replacer of names by addresses. In "[FIRST]:8080" it leaves out the brackets for IPv4.
func words(addrs map[string]string) *strings.Replacer {
	var pairs []string
	for name, addr := range addrs {
		pairs = append(pairs, "["+name+"]:", strings.TrimSuffix(netip.AddrPortFrom(netip.MustParseAddr(addr), 0).String(), "0"))
	}
	for name, addr := range addrs {
		pairs = append(pairs, name, addr)
	}
	return strings.NewReplacer(pairs...)
}

// A world is a node with a Service that has two endpoints, in one IP family.
type world struct {
	*testing.T
	*netns.Testbed
	family  sdk.Family
	program string // the program that writes rules
	words   *strings.Replacer
	undo    []string
}

// run runs a command on the node, with the addresses of the world.
func (w *world) run(command string) {
	w.Helper()
	words := strings.Fields(w.words.Replace(command))
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		w.Fatalf("%q: %v: %s", words, err, out)
	}
}

func (w *world) nft(script string) {
	w.Helper()
	script = w.words.Replace(script)
	if w.family == sdk.IPv6 {
		script = strings.NewReplacer("ip saddr", "ip6 saddr", "ip daddr", "ip6 daddr", " ip mine", " ip6 mine").Replace(script)
	}
	command := exec.Command("nft", "-f", "-")
	command.Stdin = strings.NewReader(script)
	if out, err := command.CombinedOutput(); err != nil {
		w.Fatalf("%s: %v: %s", script, err, out)
	}
}

const native = `table ip mine {
	chain early { type filter hook prerouting priority -200; }
	chain forward { type filter hook forward priority 0; }
	chain output { type filter hook output priority 0; }
	chain pick { ip daddr SERVICE tcp dport 80 dnat to numgen random mod 2 map { 0 : FIRST, 1 : SECOND } : 8080; }
	chain pre { type nat hook prerouting priority -100; jump pick; }
	chain out { type nat hook output priority -100; jump pick; }
	chain post { type nat hook postrouting priority 100; ip saddr SRC masquerade; }
}
`

// begin writes the rules of the Service, without a fault.
func (w *world) begin() {
	if w.program == "nft" {
		w.nft(native)
		return
	}
	for _, chain := range []string{"PREROUTING", "OUTPUT"} {
		w.run(w.program + " -t nat -A " + chain + " -d SERVICE -p tcp --dport 80 -m statistic --mode random --probability 0.5 -j DNAT --to-destination [FIRST]:8080")
		w.run(w.program + " -t nat -A " + chain + " -d SERVICE -p tcp --dport 80 -j DNAT --to-destination [SECOND]:8080")
	}
	w.run(w.program + " -t nat -A POSTROUTING -s SRC -j MASQUERADE")
}

// end removes all rules and routes.
func (w *world) end() {
	for _, command := range w.undo {
		w.run(command)
	}
	w.undo = nil
	if w.program == "nft" {
		w.nft("delete table ip mine")
		return
	}
	for _, table := range []string{"raw", "mangle", "nat", "filter"} {
		w.run(w.program + " -t " + table + " -F")
	}
	w.run(w.program + " -P FORWARD ACCEPT")
}

func (w *world) suffer(f fault) {
	rest, route := strings.CutPrefix(f.iptables, "route add ")
	flag := " -4"
	if w.family == sdk.IPv6 {
		flag = " -6"
	}
	chain, rule, _ := strings.Cut(f.nft, " ")
	switch {
	case route:
		w.run("ip" + flag + " route add " + rest + " metric 1")
		w.undo = append(w.undo, "ip"+flag+" route del "+rest+" metric 1")
	case w.program != "nft":
		w.run(w.program + " " + f.iptables)
	case chain == "policy":
		w.nft("table ip mine {\nchain " + rule + " {\npolicy drop;\n}\n}")
	case chain == "flush":
		w.nft("flush chain ip mine " + rule)
	default:
		w.nft("insert rule ip mine " + chain + " " + rule)
	}
}

// Trace returns what happens to packets, with any one or two of the faults.
func TestKernelAgreesWithTrace(t *testing.T) {
	g := field.Testbed(t)
	for family, addrs := range map[sdk.Family]map[string]string{
		sdk.IPv4: {"NODE": "192.0.2.10", "SRC": "198.18.0.7", "SERVICE": "172.30.0.1", "FIRST": "10.180.0.1", "SECOND": "10.180.1.1"},
		sdk.IPv6: {"NODE": "2001:db8::10", "SRC": "2001:db8:7::7", "SERVICE": "fd00:172:30::1", "FIRST": "fd00:180::1", "SECOND": "fd00:181::1"},
	} {
		programs := []string{"iptables-nft", "iptables-legacy", "nft"}
		if family == sdk.IPv6 {
			programs = []string{"ip6tables-nft", "ip6tables-legacy", "nft"}
		}
		for _, program := range programs {
			t.Run(program+" "+family.String(), func(t *testing.T) {
				w := &world{T: t, Testbed: g, family: family, program: program, words: words(addrs)}
				w.suffers(addrs)
			})
		}
	}
}

// stage starts the endpoints.
func (w *world) stage(addrs map[string]string) sdktest.Stage {
	w.Helper()
	if err := w.Own(netip.MustParseAddr(addrs["NODE"])); err != nil {
		w.Fatal(err)
	}
	endpoint := func(name string) sdk.Endpoint {
		return sdk.Endpoint{Addr: netip.AddrPortFrom(netip.MustParseAddr(addrs[name]), 8080)}
	}
	s := sdktest.Scenario{Services: []sdk.Service{{
		Name:    sdk.Name{Namespace: "ns", Service: "s", Protocol: sdk.TCP, Family: w.family},
		Cluster: []sdk.Endpoint{endpoint("FIRST"), endpoint("SECOND")},
	}}}
	stage, err := w.Open(w.Context(), nil, s)
	if err != nil {
		w.Fatal(err)
	}
	return stage
}

// suffers tests each fault, and pairs of faults.
func (w *world) suffers(addrs map[string]string) {
	stage := w.stage(addrs)
	defer stage.Close()
	random := rand.New(rand.NewPCG(1, uint64(w.family)))
	for i := range len(common) * 3 / 2 {
		some := []fault{common[i%len(common)]}
		if i >= len(common) {
			some = append(some, common[random.IntN(len(common))])
		}
		w.begin()
		for _, f := range some {
			if strings.HasPrefix(f.iptables, "route") && len(w.undo) > 0 {
				continue
			}
			w.suffer(f)
		}
		for _, from := range []sdk.Caller{{Addr: netip.MustParseAddr(addrs["SRC"])}, {Addr: netip.MustParseAddr(addrs["NODE"]), From: sdk.OnNode}} {
			p := sdktest.Packet{From: from, Protocol: sdk.TCP, To: netip.AddrPortFrom(netip.MustParseAddr(addrs["SERVICE"]), 80)}
			if from.From != sdk.OnNode {
				p.Interface = "eth7"
			}
			w.compare(stage, p, some)
		}
		w.end()
	}
}

// compare sends a packet twice, and compares the result with that of Trace.
func (w *world) compare(stage sdktest.Stage, p sdktest.Packet, some any) {
	w.Helper()
	if p.Interface != "" {
		if _, err := w.Behind(p.Interface, p.From.Addr); err != nil { // creates the interface
			w.Fatal(err)
		}
	}
	said, err := Trace(w.Context(), sdk.Packet{Protocol: p.Protocol, From: netip.AddrPortFrom(p.From.Addr, 0), To: p.To, Origin: p.From.From, In: p.Interface}, "")
	if err != nil || len(said.Notes) > 0 {
		w.Fatalf("%v: %s > %s: %+v, %v", some, p.From.Addr, p.To, said, err)
	}
	turnedAway := false          // for processes of the node, the error then depends on the rule
	p.Want.Verdict = sdk.Forward // Send waits for an answer, unless there may be none
	v6 := p.To.Addr().Is6()
	for _, way := range said.Ways {
		turnedAway = turnedAway || way.Verdict != sdk.Forward
		if way.Then != "" || len(way.Steps) == 0 {
			w.Errorf("%v: %s > %s: %+v", some, p.From.Addr, p.To, said)
		}
		if way.Verdict == sdk.Drop || way.Verdict == sdk.Reject && v6 {
			p.Want.Verdict = sdk.Drop
		}
		if way.To == p.To && way.Verdict == sdk.Forward {
			return // the packet is not translated, and nothing listens there
		}
	}
	for range 2 {
		a, err := stage.Send(w.Context(), p)
		lost := v6 && err == nil && a.Verdict == sdk.Drop // IPv6 loses the answer of a rule that rejects a translated packet
		if err == nil && !lost && !includes(said, a, p) || (err != nil || lost) && !turnedAway {
			w.Errorf("%v: %s > %s: %s, %v; Trace returned %+v", some, p.From.Addr, p.To, a, err, said)
		}
	}
}

// includes reports whether an answer agrees with one of the ways.
func includes(said sdk.Traced, a sdktest.Answer, p sdktest.Packet) bool {
	for _, w := range said.Ways {
		if w.Verdict == a.Verdict && (a.Verdict != sdk.Forward || w.To == a.Endpoint && (p.From.From == sdk.OnNode || w.Masquerade == (a.Client != p.From.Addr))) {
			return true
		}
	}
	return false
}

// TestKernelOrder: of chains with the same hook and priority, the kernel calls the one first that was registered last. It
// calls all nat chains at the priority of nf_nat. A packet must pass the rules of all tools.
func TestKernelOrder(t *testing.T) {
	g := field.Testbed(t)
	addrs := map[string]string{"NODE": "192.0.2.10", "SRC": "198.18.0.7", "SERVICE": "172.30.0.1", "FIRST": "10.180.0.1", "SECOND": "10.180.1.1"}
	w := &world{T: t, Testbed: g, family: sdk.IPv4, words: words(addrs)}
	stage := w.stage(addrs)
	defer stage.Close()
	const first = "iptables-nft -t nat -A PREROUTING -d SERVICE -p tcp --dport 80 -j DNAT --to-destination [FIRST]:8080"
	nat := func(priority, to string) string {
		return "table ip mine {\nchain pre {\ntype nat hook prerouting priority " + priority + ";\nip daddr SERVICE tcp dport 80 dnat to [" + to + "]:8080;\n}\n}\n"
	}
	for _, tt := range []struct {
		what  string
		does  []string // commands of iptables, and scripts of nft
		comes string   // the endpoint that gets the packet; empty: none
	}{
		{"iptables before nftables", []string{first, nat("-100", "SECOND")}, "SECOND"},
		{"nftables before iptables", []string{nat("-100", "SECOND"), first}, "FIRST"},
		{"a lower priority", []string{nat("-101", "SECOND"), first}, "SECOND"},
		{"a chain of filter before nat, by its priority", []string{nat("-150", "FIRST"), "table ip other {\nchain pre {\ntype filter hook prerouting priority -120;\nip daddr SERVICE drop;\n}\n}\n"}, ""},
		{"a chain of filter behind nat", []string{nat("-150", "FIRST"), "table ip other {\nchain pre {\ntype filter hook prerouting priority -90;\nip daddr SERVICE drop;\n}\n}\n"}, "FIRST"},
		{"iptables forbids what nftables translates", []string{nat("-100", "FIRST"), "iptables-nft -A FORWARD -d FIRST -j DROP"}, ""},
		{"iptables forbids where nftables translates before iptables does", []string{first, nat("-100", "SECOND"), "iptables-nft -A FORWARD -d SECOND -j DROP"}, ""},
		{"legacy iptables does", []string{nat("-100", "FIRST"), "iptables-legacy -A FORWARD -d FIRST -j DROP"}, ""},
		{"a set of ranges does", []string{nat("-100", "FIRST"), "table inet wall {\nchain f {\ntype filter hook forward priority 0;\nip daddr { 10.180.0.0/24, 10.9.0.0/16 } drop;\n}\n}\n"}, ""},
	} {
		w.nft("flush ruleset")
		for _, command := range tt.does {
			if strings.HasPrefix(command, "table") {
				w.nft(command)
			} else {
				w.run(command)
			}
		}
		p := sdktest.Packet{From: sdk.Caller{Addr: netip.MustParseAddr(addrs["SRC"])}, Protocol: sdk.TCP, To: netip.MustParseAddrPort("172.30.0.1:80"), Interface: "eth7"}
		w.compare(stage, p, tt.what)
		said, err := Trace(t.Context(), sdk.Packet{Protocol: p.Protocol, From: netip.AddrPortFrom(p.From.Addr, 0), To: p.To, In: p.Interface}, "")
		if err != nil || len(said.Ways) != 1 || (said.Ways[0].Verdict == sdk.Forward) != (tt.comes != "") || tt.comes != "" && said.Ways[0].To.Addr().String() != addrs[tt.comes] {
			t.Errorf("%s: %+v, %v", tt.what, said, err)
		}
		if strings.Contains(tt.what, "legacy") {
			w.run("iptables-legacy -F FORWARD")
		}
	}
}
