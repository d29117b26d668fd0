// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/faults"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A world is a node with a Service that has two endpoints, in one IP family.
type world struct {
	*testing.T
	*netns.Testbed
	family  sdk.Family
	program string // that writes rules
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

// begin has the Service there, and no fault.
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

// end has nothing there.
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

func (w *world) suffer(f faults.Fault) {
	rest, route := strings.CutPrefix(f.IPTables, "route add ")
	flag := " -4"
	if w.family == sdk.IPv6 {
		flag = " -6"
	}
	chain, rule, _ := strings.Cut(f.NFT, " ")
	switch {
	case route:
		w.run("ip" + flag + " route add " + rest + " metric 1")
		w.undo = append(w.undo, "ip"+flag+" route del "+rest+" metric 1")
	case w.program != "nft":
		w.run(w.program + " " + f.IPTables)
	case chain == "policy":
		w.nft("table ip mine {\nchain " + rule + " {\npolicy drop;\n}\n}")
	case chain == "flush":
		w.nft("flush chain ip mine " + rule)
	default:
		w.nft("insert rule ip mine " + chain + " " + rule)
	}
}

// Whatever another program has put in a packet's way, and wherever: what is said of it is what becomes
// of it.
func TestKernelTellsTheTruth(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it makes network namespaces, and writes to their tables")
	}
	g, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
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
				w := &world{T: t, Testbed: g, family: family, program: program, words: faults.Words(addrs)}
				w.suffers(addrs)
			})
		}
	}
}

// suffers tries faults, one after the other and two at a time.
func (w *world) suffers(addrs map[string]string) {
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
	defer stage.Close()
	random := rand.New(rand.NewPCG(1, uint64(w.family)))
	for i := range len(faults.Common) * 3 / 2 {
		some := []faults.Fault{faults.Common[i%len(faults.Common)]}
		if i >= len(faults.Common) {
			some = append(some, faults.Common[random.IntN(len(faults.Common))])
		}
		w.begin()
		for _, f := range some {
			if strings.HasPrefix(f.IPTables, "route") && len(w.undo) > 0 {
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

// compare sends a packet some times, and compares what becomes of it with what is said.
func (w *world) compare(stage sdktest.Stage, p sdktest.Packet, some []faults.Fault) {
	w.Helper()
	if p.Interface != "" {
		if _, err := w.Behind(p.Interface, p.From.Addr); err != nil { // the device is there from now on
			w.Fatal(err)
		}
	}
	faults.Compare(w.T, some, Trace, stage, p)
}
