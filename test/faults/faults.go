// SPDX-License-Identifier: Apache-2.0

// Package faults has what other programs put in a packet's way, and compares what a dataplane says of
// packets with what becomes of them, so that every mode is tested in the same way.
package faults

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// A Fault is a rule or route of another program, as each of the tools writes it. SRC, SERVICE, FIRST and
// SECOND stand for the caller's address, the Service's and its endpoints'.
type Fault struct{ IPTables, NFT string }

// Common are those of every mode. Callers from elsewhere come in by eth7.
var Common = []Fault{
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

// Services have frontends of every kind, in both families: of a scenario of sdktest.
const Services = `ns1/web:http tcp
  cluster-ip    172.30.0.41:80
  cluster-ip    [fd00:172:30::41]:80
  external-ip   198.51.100.1:80 local
  external-ip   [2001:db8:51::1]:80 local
  load-balancer 198.51.100.2:80 from 10.180.0.0/24 198.18.0.0/24
  load-balancer [2001:db8:51::2]:80 from fd00:10:180::/64 2001:db8:7::/64
  node-port     30080
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.1.1:8080
  endpoint      [fd00:10:180::1]:8080 here
  endpoint      [fd00:10:180:1::1]:8080
ns1/kept:http tcp
  affinity      10m
  cluster-ip    172.30.0.42:80
  cluster-ip    [fd00:172:30::42]:80
  endpoint      10.180.0.1:8080 here
  endpoint      10.180.1.1:8080
  endpoint      [fd00:10:180::1]:8080 here
  endpoint      [fd00:10:180:1::1]:8080
ns1/none:http tcp
  cluster-ip    172.30.0.43:80
  cluster-ip    [fd00:172:30::43]:80
`

// Words puts addresses where their names stand, and with a port behind it, [FIRST]:8080, as an IP family
// writes that.
func Words(addrs map[string]string) *strings.Replacer {
	var pairs []string
	for name, addr := range addrs {
		pairs = append(pairs, "["+name+"]:", strings.TrimSuffix(netip.AddrPortFrom(netip.MustParseAddr(addr), 0).String(), "0"))
	}
	for name, addr := range addrs {
		pairs = append(pairs, name, addr)
	}
	return strings.NewReplacer(pairs...)
}

// Compare sends p some times, and compares what becomes of it with what trace says. The faults that are
// there name it.
func Compare(t testing.TB, some any, trace func(context.Context, sdk.Packet) (sdk.Traced, error), stage sdktest.Stage, p sdktest.Packet) {
	t.Helper()
	said, err := trace(t.Context(), sdk.Packet{Protocol: p.Protocol, From: netip.AddrPortFrom(p.From.Addr, 0), To: p.To, Origin: p.From.From, In: p.Interface})
	if err != nil || said.CannotTell != "" {
		t.Fatalf("%v: %s > %s: %+v, %v", some, p.From.Addr, p.To, said, err)
	}
	share := 0.0
	p.Want.Verdict = sdk.Forward // an answer is waited for, unless there may be none
	v6 := p.To.Addr().Is6()
	for _, way := range said.Ways {
		share += way.Share
		if way.Verdict == sdk.Drop || way.Verdict == sdk.Reject && v6 {
			p.Want.Verdict = sdk.Drop
		}
		if way.To == p.To && way.Verdict == sdk.Forward {
			return // it goes on as it was sent, and nothing listens there
		}
	}
	if share < 0.999 || share > 1.001 {
		t.Errorf("%v: %s > %s: shares of %g: %+v", some, p.From.Addr, p.To, share, said)
	}
	for range 2 {
		a, err := stage.Send(t.Context(), p)
		lost := v6 && err == nil && a.Verdict == sdk.Drop // what rejects a translated packet sends an answer, which IPv6 loses
		if err == nil && !lost && !includes(said, a, p) || (err != nil || lost) && !refuses(said) {
			t.Errorf("%v: %s > %s: %s, %v, and it is said %+v", some, p.From.Addr, p.To, a, err, said)
		}
	}
}

// includes reports whether an answer is one of the ways.
func includes(said sdk.Traced, a sdktest.Answer, p sdktest.Packet) bool {
	for _, w := range said.Ways {
		if w.Verdict == a.Verdict && (a.Verdict != sdk.Forward || w.To == a.Endpoint && (p.From.From == sdk.OnNode || w.Masquerade == (a.Client != p.From.Addr))) {
			return true
		}
	}
	return false
}

// refuses reports whether a packet may be turned away: the node's own processes get an error then
// that depends on the rule.
func refuses(said sdk.Traced) bool {
	for _, w := range said.Ways {
		if w.Verdict != sdk.Forward {
			return true
		}
	}
	return false
}
