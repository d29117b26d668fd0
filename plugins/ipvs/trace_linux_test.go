// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/test/faults"
)

// everyKind has frontends of every kind, in both families.
const everyKind = `
-- services --
` + faults.Services + `-- packets --
10.180.0.9 > 172.30.0.43:80 = reject
`

// A broken node is one that serves in one IP family while no process of the dataplane runs, so that
// nothing repairs what is broken there.
type broken struct {
	*stand
	family sdk.Family
	words  *strings.Replacer
	addrs  map[string]string
	saved  string // where the rules and the sets are, as they should be
	plugin *plugin
}

// A fault is a script, and the one that undoes it. IPT is iptables of the family; what that did is undone by
// what it had saved.
type fault struct{ do, undo string }

// Those that are tried in both families.
var inBoth = []fault{
	{"true", "true"},
	{"IPT -I INPUT -s SRC -j DROP", ""},
	{"IPT -I OUTPUT -o uplink -p tcp --dport 8080 -j REJECT", ""},
	{"IPT -P FORWARD DROP", ""},
	{"IPT -t nat -F WAYIN", ""},
	{"ip address del SERVICE dev kube-ipvs0", "ip address add SERVICE dev kube-ipvs0 nodad"},
}

// Those that are tried in one of them, and in a soak in both.
var inOne = []fault{
	{"IPT -I INPUT -d SERVICE -p tcp --dport 80 -j REJECT", ""},
	{"IPT -I INPUT -i eth7 -j DROP", ""},
	{"IPT -A INPUT -m conntrack --ctstate NEW -j DROP", ""},
	{"IPT -P INPUT DROP && IPT -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED,UNTRACKED -j ACCEPT", ""},
	{"IPT -I OUTPUT -d FIRST -j DROP", ""},
	{"IPT -I OUTPUT -m conntrack --ctstate DNAT -j DROP", ""},
	{"IPT -t mangle -I PREROUTING -s SRC -j MARK --set-mark 7; IPT -I INPUT -m mark --mark 7/7 -j DROP", ""},
	{"IPT -t mangle -I OUTPUT -d SECOND -j MARK --set-mark 9", ""},
	{"IPT -t nat -I POSTROUTING -d FIRST -j ACCEPT", ""},
	{"IPT -t nat -F KUBE-IPVS-POSTROUTING", ""},
	{"IPT -t mangle -F KUBE-IPVS-DROP; IPT -t mangle -F KUBE-IPVS-NEAR", ""},
	{"IPT -F INPUT", ""},
	{"ipset flush CLUSTERS", "ipset -exist restore < SAVED.ipset"},
	{"ipset flush BOUND", "ipset -exist restore < SAVED.ipset"},
	{"ipvsadm -e -t [SERVICE]:80 -r [FIRST]:8080 -m -w 0", "ipvsadm -e -t [SERVICE]:80 -r [FIRST]:8080 -m -w 1"},
	{"ipvsadm -d -t [SERVICE]:80 -r [FIRST]:8080", "ipvsadm -a -t [SERVICE]:80 -r [FIRST]:8080 -m -w 1"},
	{"ipvsadm -E -t [SERVICE]:80 -s sh", "ipvsadm -E -t [SERVICE]:80 -s rr"},
}

func soak() bool { return os.Getenv("POINTSMAN_SOAK") != "" }

// allFaults are those of a family.
func allFaults(family sdk.Family) []fault {
	all, more := slices.Clone(inBoth), slices.Clone(inOne)
	for _, f := range faults.Common {
		if !soak() && strings.Contains(f.IPTables, "FORWARD") {
			continue // nothing comes there that IPVS takes
		}
		if route, is := strings.CutPrefix(f.IPTables, "route add "); is {
			more = append(more, fault{"ip route add " + route + " metric 1", "ip route del " + route + " metric 1"})
		} else {
			more = append(more, fault{"IPT " + f.IPTables, ""})
		}
	}
	for i, f := range more {
		if soak() || (i%2 == 0) == (family == sdk.IPv4) {
			all = append(all, f)
		}
	}
	return append(all, fault{"ipvsadm -D -t [SERVICE]:80", ""}) // the last one, and not undone
}

// Whatever another program has put in a packet's way: what is said of it is what becomes of it. Without
// that, TestKernelIPVSConforms compares it for each packet of each scenario.
func TestKernelIPVSTellsTheTruth(t *testing.T) {
	s := newStand(t, "")
	s.serve(everyKind)
	if err := s.plugin.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // so that it cleans up
		s.plugin = newPlugin(s.dir, thisMachine())
		if _, err := s.plugin.Configure(context.Background(), sdk.Setup{}); err != nil {
			t.Error(err)
		}
	})
	for family, addrs := range map[sdk.Family]map[string]string{
		sdk.IPv4: {"NODE": "192.0.2.10", "SRC": "198.18.0.7", "POD": "10.180.0.9", "SERVICE": "172.30.0.41", "FIRST": "10.180.0.1", "SECOND": "10.180.1.1",
			"KEPT": "172.30.0.42", "NONE": "172.30.0.43", "LOCAL": "198.51.100.1", "LIMITED": "198.51.100.2"},
		sdk.IPv6: {"NODE": "2001:db8::10", "SRC": "2001:db8:7::7", "POD": "fd00:10:180::9", "SERVICE": "fd00:172:30::41", "FIRST": "fd00:10:180::1", "SECOND": "fd00:10:180:1::1",
			"KEPT": "fd00:172:30::42", "NONE": "fd00:172:30::43", "LOCAL": "2001:db8:51::1", "LIMITED": "2001:db8:51::2"},
	} {
		t.Run(family.String(), func(t *testing.T) {
			w := &broken{stand: s, family: family, words: faults.Words(addrs), addrs: addrs, saved: filepath.Join(t.TempDir(), "saved"), plugin: newPlugin(s.dir, thisMachine())}
			w.suffers(t)
		})
	}
}

// suffers tries faults, one after the other, each with a random caller, and some with one from elsewhere too.
func (w *broken) suffers(t *testing.T) {
	w.run(t, "IPT-save > SAVED; ipset save > SAVED.ipset")
	random := rand.New(rand.NewPCG(1, uint64(w.family)))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for i, f := range allFaults(w.family) {
		w.run(t, f.do)
		if soak() || i < len(inBoth) {
			w.compare(t, f.do, "SRC", "SERVICE")
		}
		w.compare(t, f.do, one("SRC", "SRC", "NODE", "NODE", "POD", "FIRST"), one("SERVICE", "SERVICE", "SERVICE", "LOCAL", "LIMITED", "KEPT", "NONE", "NODE"))
		if w.run(t, f.undo); strings.Contains(f.do, "IPT") {
			w.run(t, "IPT-restore < SAVED")
		}
	}
}

func (w *broken) compare(t *testing.T, fault, from, to string) {
	t.Helper()
	p := sdktest.Packet{Protocol: sdk.TCP, From: sdk.Caller{Addr: netip.MustParseAddr(w.addrs[from])}, To: netip.AddrPortFrom(netip.MustParseAddr(w.addrs[to]), 80)}
	if to == "NODE" {
		p.To = netip.AddrPortFrom(p.To.Addr(), 30080)
	}
	switch from {
	case "NODE":
		p.From.From = sdk.OnNode
	case "SRC":
		p.Interface = "eth7"
		if _, err := w.node.Behind(p.Interface, p.From.Addr); err != nil { // the device is there from now on
			t.Fatal(err)
		}
	default:
		p.From.From = sdk.OnPod
		if _, err := w.node.Host(p.From.Addr); err != nil {
			t.Fatal(err)
		}
	}
	faults.Compare(t, fmt.Sprintf("%s, from %s to %s", fault, from, to), w.plugin.Trace, w.stage, p)
}

// run runs a script on the node, with its addresses and programs in place of their names.
func (w *broken) run(t *testing.T, script string) {
	t.Helper()
	program, version := "iptables-legacy", "ip -4 route"
	if w.family == sdk.IPv6 {
		program, version = "ip6tables-legacy", "ip -6 route"
	}
	programs := strings.NewReplacer("IPT", program, "ip route", version, "WAYIN", wayIn, "CLUSTERS", clusterIPs.in(w.family), "BOUND", bound.in(w.family), "SAVED", w.saved)
	run(t, "sh", "-ec", programs.Replace(w.words.Replace(script)))
}
