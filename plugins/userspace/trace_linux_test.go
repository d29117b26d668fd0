// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/faults"
)

// everyKind has frontends of every kind, in both families.
const everyKind = `In a test.
-- services --
` + faults.Services + `ns1/dns udp
  cluster-ip    172.30.0.41:80
  cluster-ip    [fd00:172:30::41]:80
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.1.1:8080
  endpoint      [fd00:10:180::1]:8080 here
  endpoint      [fd00:10:180:1::1]:8080
-- packets --
10.180.0.9 > 172.30.0.43:80 = reject
`

// A broken node is one whose relay serves while something is wrong in one IP family. Nothing is repaired meanwhile.
type broken struct {
	node
	sdktest.Stage
	family sdk.Family
	words  *strings.Replacer
	addrs  map[string]string
	saved  string // where the rules are, as they should be
}

// A fault is a script, and the one that undoes it. IPT is iptables of the family, TONODE and TOANY are chains; what
// iptables did is undone by what it had saved.
type fault struct{ do, undo string }

// Those that are tried with a caller from elsewhere, by TCP and by UDP.
var always = []fault{
	{"true", "true"},
	{"IPT -I INPUT -s SRC -j DROP", ""},
	{"IPT -I INPUT -i eth7 -j DROP", ""},
	{"IPT -P FORWARD DROP", ""},
	{"IPT -I OUTPUT -d FIRST -j DROP", ""},
	{"IPT -t nat -F KUBE-PORTALS-VIP", ""},
}

// A sometime is a fault, and what is tried with it; in a soak all is.
type sometime struct {
	fault
	protocol sdk.Protocol
	from, to string // empty: any
}

var sometimes = []sometime{
	{fault{"IPT -I OUTPUT -p tcp --dport 8080 -j REJECT", ""}, sdk.TCP, "SRC", "SERVICE"},
	{fault{"IPT -I OUTPUT -p udp -j DROP", ""}, sdk.UDP, "POD", "SERVICE"},
	{fault{"IPT -I OUTPUT -d SECOND -j REJECT", ""}, sdk.TCP, "SRC", "KEPT"},
	{fault{"IPT -t mangle -I OUTPUT -m mark --mark 0x2000/0x2000 -d FIRST -j DROP", ""}, sdk.TCP, "NODE", "SERVICE"},
	{fault{"IPT -t nat -I OUTPUT -d FIRST -p tcp -j DNAT --to-destination [SECOND]:8080", ""}, sdk.TCP, "SRC", "LOCAL"},
	{fault{"IPT -A INPUT -m conntrack --ctstate NEW -j DROP", ""}, sdk.TCP, "SRC", "SERVICE"},
	{fault{"IPT -t nat -F KUBE-PORTALS-CONTAINER", ""}, sdk.TCP, "", "SERVICE"},
	{fault{"IPT -t nat -F TONODE", ""}, sdk.TCP, "NODE", "SERVICE"},
	{fault{"IPT -F KUBE-PORTALS-OWN", ""}, sdk.TCP, "SRC", "SERVICE"},
	{fault{"IPT -F KUBE-PORTALS-DENY", ""}, sdk.TCP, "SRC", "NONE"},
	{fault{"IPT -F INPUT", ""}, sdk.TCP, "SRC", "LIMITED"},
	{fault{"IPT -t nat -I TOANY -p tcp -j DNAT --to-destination [NODE]:9", ""}, sdk.TCP, "SRC", "SERVICE"},
	{fault{"IPT -t nat -I POSTROUTING -j MASQUERADE", ""}, sdk.TCP, "NODE", "SERVICE"},
	{fault{"ip route add blackhole SECOND metric 1", "ip route del blackhole SECOND metric 1"}, sdk.UDP, "SRC", "SERVICE"},
	{fault{"IPT -I INPUT -p tcp --syn -j REJECT", ""}, sdk.TCP, "SRC", "SERVICE"},
	{fault{"ip route add unreachable FIRST metric 1", "ip route del unreachable FIRST metric 1"}, sdk.TCP, "SRC", "SERVICE"},
}

func soak() bool { return os.Getenv("POINTSMAN_SOAK") != "" }

// someFaults are those of a family: the shared ones too, of which those that no packet of a relay meets are for a soak.
func someFaults(family sdk.Family) (some []sometime) {
	all := slices.Clone(sometimes)
	for _, f := range faults.Common {
		if !strings.HasPrefix(f.IPTables, "route") && (soak() || !strings.Contains(f.IPTables, "FORWARD")) {
			all = append(all, sometime{fault{"IPT " + f.IPTables, ""}, sdk.TCP, "", ""})
		}
	}
	for i, f := range all {
		if soak() || (i%2 == 0) == (family == sdk.IPv4) {
			some = append(some, f)
		}
	}
	if family == sdk.IPv4 { // IPv6 sends what is for it to the router then
		some = append(some, sometime{fault{"ip address del NODE dev uplink", "ip address add NODE dev uplink"}, sdk.TCP, "SRC", "SERVICE"})
	}
	return some
}

// Whatever is in a packet's way, to the relay or from there: what is said of it is what becomes of it. Without
// that, TestKernelConforms compares it for each packet of each scenario.
func TestKernelTellsTheTruth(t *testing.T) {
	s, err := sdktest.Parse("test.txtar", []byte(everyKind))
	if err != nil {
		t.Fatal(err)
	}
	family := sdk.IPv4 // on one backend; on the other IPv6
	onKernel(t, func(k kernel) {
		addrs := map[string]string{"NODE": "192.0.2.10", "SRC": "198.18.0.7", "POD": "10.180.0.9", "SERVICE": "172.30.0.41", "FIRST": "10.180.0.1", "SECOND": "10.180.1.1",
			"KEPT": "172.30.0.42", "NONE": "172.30.0.43", "LOCAL": "198.51.100.1", "LIMITED": "198.51.100.2"}
		if family == sdk.IPv6 {
			addrs = map[string]string{"NODE": "2001:db8::10", "SRC": "2001:db8:7::7", "POD": "fd00:10:180::9", "SERVICE": "fd00:172:30::41", "FIRST": "fd00:10:180::1", "SECOND": "fd00:10:180:1::1",
				"KEPT": "fd00:172:30::42", "NONE": "fd00:172:30::43", "LOCAL": "2001:db8:51::1", "LIMITED": "2001:db8:51::2"}
		}
		n := node{world: world(k.T), kernel: k, stage: &stage{T: k.T, plugin: newPlugin(k.dir)}}
		k.Cleanup(func() { n.stage.Close() })
		placed, _ := n.world.Place(s)
		opened, err := n.world.Open(k.Context(), nil, placed)
		if err != nil {
			k.Fatal(err)
		}
		defer opened.Close()
		n.begin()
		facts := placed.Node
		n.must(sdk.Update{Full: true, Node: &facts, Set: placed.Services})
		n.role(sdk.Active)
		b := &broken{node: n, Stage: opened, family: family, words: faults.Words(addrs), addrs: addrs, saved: filepath.Join(k.TempDir(), "saved")}
		n.do(func() error { b.suffers(); return nil })
		family = sdk.IPv6
	})
}

// suffers tries faults, one after the other. It is called while nothing else is at work in the plugin.
func (b *broken) suffers() {
	b.script("IPT-save > SAVED")
	random := rand.New(rand.NewPCG(1, uint64(b.family)))
	one := func(named string, of ...string) string { return cmp.Or(named, of[random.IntN(len(of))]) }
	anyFrom, anyTo := []string{"SRC", "NODE", "NODE", "POD", "FIRST"}, []string{"SERVICE", "SERVICE", "LOCAL", "LIMITED", "NONE", "NODE"}
	for _, f := range always {
		b.with(f, func() {
			b.compare(f.do, sdk.UDP, one("", "SRC", "NODE", "POD"), "SERVICE")
			b.compare(f.do, sdk.TCP, "SRC", "SERVICE")
		})
	}
	for _, f := range someFaults(b.family) {
		b.with(f.fault, func() {
			b.compare(f.do, f.protocol, one(f.from, anyFrom...), one(f.to, anyTo...))
			if soak() {
				b.compare(f.do, sdk.TCP, one("", anyFrom...), one("", anyTo...))
				b.compare(f.do, sdk.UDP, one("", anyFrom...), "SERVICE")
			}
		})
	}
}

func (b *broken) with(f fault, do func()) {
	b.Helper()
	b.script(f.do)
	do()
	if b.script(f.undo); strings.Contains(f.do, "IPT") {
		b.script("IPT -P INPUT ACCEPT; IPT -P FORWARD ACCEPT; IPT -t mangle -F; IPT -t raw -F; IPT-restore < SAVED")
	}
}

func (b *broken) compare(fault string, protocol sdk.Protocol, from, to string) {
	b.Helper()
	p := sdktest.Packet{Protocol: protocol, From: sdk.Caller{Addr: netip.MustParseAddr(b.addrs[from])}, To: netip.AddrPortFrom(netip.MustParseAddr(b.addrs[to]), 80)}
	if to == "NODE" {
		p.To = netip.AddrPortFrom(p.To.Addr(), 30080)
	}
	switch from {
	case "NODE":
		p.From.From = sdk.OnNode
	case "SRC":
		p.Interface = "eth7"
		if _, err := b.world.Behind(p.Interface, p.From.Addr); err != nil { // the device is there from now on
			b.Fatal(err)
		}
	default:
		p.From.From = sdk.OnPod
		b.host(b.addrs[from])
	}
	trace := func(ctx context.Context, p sdk.Packet) (sdk.Traced, error) {
		k, err := hooks.Now(ctx, b.family)
		if err != nil {
			return sdk.Traced{}, err
		}
		t, err := b.plugin.traceOn(k, p, func(look func()) error { look(); return nil })
		b.Logf("%s, %s from %s to %s: %+v, %v", fault, protocol, from, to, t, err)
		return t, err
	}
	faults.Compare(b.node.T, fmt.Sprintf("%s, %s from %s to %s", fault, protocol, from, to), trace, b.Stage, p)
}

// script runs a script on the node, with its addresses and programs in place of their names.
func (b *broken) script(text string) {
	b.Helper()
	program, version := "iptables-", "ip -4 route"
	if b.family == sdk.IPv6 {
		program, version = "ip6tables-", "ip -6 route"
	}
	text = strings.NewReplacer("IPT", program+string(b.kernel.backend), "ip route", version, "TONODE", strings.ReplaceAll(toNode.Chain, "NODE", "\x00"), "TOANY", toAny.Chain, "SAVED", b.saved).Replace(text)
	text = strings.ReplaceAll(b.words.Replace(text), "\x00", "NODE")
	if out, err := exec.Command("sh", "-ec", text).CombinedOutput(); err != nil {
		b.Fatalf("%s: %v: %s", text, err, out)
	}
}
