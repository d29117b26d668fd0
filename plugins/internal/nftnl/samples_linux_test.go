// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"context"
	"strings"
	"testing"
	"time"
)

// key returns a rule that begins by loading the destination: "ip daddr . meta l4proto . th dport".
func key(rest ...Expr) []Expr {
	return append([]Expr{Payload(Network, 16, 4, 0), Meta(MetaL4Proto, 1), Payload(Transport, 2, 2, 2)}, rest...)
}

// samples are rules as expressions of this package, and as text for nft.
var samples = []struct {
	text  string
	exprs []Expr
}{
	{"ip daddr . meta l4proto . th dport @frontends goto other", key(In("frontends", 0), Do(Goto("other")))},
	{"ip daddr . meta l4proto . th dport != @frontends jump other", key(NotIn("frontends", 0), Do(Jump("other")))},
	{"ip daddr . meta l4proto . th dport . ip saddr != @allowed drop", key(Payload(Network, 12, 4, 3), NotIn("allowed", 0), Do(Drop))},
	{"meta priority set ip daddr . meta l4proto . th dport map @numbers jump other", key(Find("numbers", 0, 0), SetMeta(MetaPriority, 0), Do(Jump("other")))},
	{"meta priority . ip saddr @numbered meta priority set none", []Expr{
		Meta(MetaPriority, 0), Payload(Network, 12, 4, 1), In("numbered", 0), Load(0, mark(0)), SetMeta(MetaPriority, 0)}},
	{"meta l4proto tcp reject with tcp reset", []Expr{Meta(MetaL4Proto, 0), Cmp(Equal, 0, "\x06"), Reset()}},
	{"reject with icmp port-unreachable", []Expr{Unreachable(IPv4)}},
	{"ct status & dnat == 0x0 accept", []Expr{CT(CTStatus, 0), Mask(0, mark(32)), Cmp(Equal, 0, mark(0)), Do(Accept)}},
	{"ct state & invalid != 0x0 drop", []Expr{CT(CTState, 0), Mask(0, mark(1)), Cmp(NotEqual, 0, mark(0)), Do(Drop)}},
	{"ct original ip daddr 10.0.0.1 return", []Expr{CTOriginal(CTDstIP, 0), Cmp(Equal, 0, "\x0a\x00\x00\x01"), Do(Return)}},
	{"meta iif 0 accept", []Expr{Meta(MetaIif, 0), Cmp(Equal, 0, mark(0)), Do(Accept)}},
	{`iifname "cali*" accept`, []Expr{Meta(MetaIifName, 0), Cmp(Equal, 0, "cali"), Do(Accept)}},
	{`iifname "cbr0" accept`, []Expr{Meta(MetaIifName, 0), Cmp(Equal, 0, "cbr0"+strings.Repeat("\x00", 12)), Do(Accept)}},
	{"ip saddr 10.16.0.0/12 accept", []Expr{Payload(Network, 12, 4, 0), Mask(0, "\xff\xf0\x00\x00"), Cmp(Equal, 0, "\x0a\x10\x00\x00"), Do(Accept)}},
	{"meta l4proto tcp dnat ip to ip saddr map @sticky", []Expr{Meta(MetaL4Proto, 0), Cmp(Equal, 0, "\x06"), Payload(Network, 12, 4, 0), Find("sticky", 0, 0), DNAT(IPv4, 0, 1)}},
	{"meta l4proto udp update @sticky { ip saddr timeout 1m : ip daddr . th dport }", []Expr{
		Meta(MetaL4Proto, 0), Cmp(Equal, 0, "\x11"), Payload(Network, 12, 4, 0), Payload(Network, 16, 4, 4), Payload(Transport, 2, 2, 5), Remember("sticky", 0, 4, time.Minute)}},
	{"fib daddr type local return", []Expr{Fib(0), Cmp(Equal, 0, mark(Local)), Do(Return)}},
}

// sampleSets are the sets that the samples use.
var sampleSets = []Set{
	{Name: "frontends", Key: keyFields},
	{Name: "allowed", Key: append(keyFields, Addr4), Flags: Interval},
	{Name: "numbers", Key: keyFields, Data: []Field{Priority}},
	{Name: "numbered", Key: []Field{Priority, Addr4}},
	{Name: "known", Key: []Field{Priority}},
	{Name: "endpoints", Key: append(keyFields, Mark), Data: destFields},
	{Name: "sticky", Key: []Field{Addr4}, Data: destFields, Flags: Dynamic, Timeout: time.Hour, Size: 1 << 17},
}

const sampleText = `
	set frontends { type ipv4_addr . inet_proto . inet_service; }
	set allowed { type ipv4_addr . inet_proto . inet_service . ipv4_addr; flags interval; }
	map numbers { type ipv4_addr . inet_proto . inet_service : classid; }
	set numbered { type classid . ipv4_addr; }
	set known { type classid; }
	map endpoints { type ipv4_addr . inet_proto . inet_service . mark : ipv4_addr . inet_service; }
	map sticky { type ipv4_addr : ipv4_addr . inet_service; flags dynamic,timeout; timeout 1h; size 131072; }
	chain other { }
	chain hide { type nat hook postrouting priority 100; policy accept; masquerade fully-random; }
`

const at10 = "\x0a\x00\x00\x01\x06\x00\x00\x00\x00\x50\x00\x00" // 10.0.0.1 . tcp . 80

// writeSamples creates the table "ours" with the samples.
func writeSamples(t testing.TB, c *Conn) {
	b := NewBatch(IPv4, "ours")
	b.NewTable(0)
	for _, s := range sampleSets {
		b.NewSet(s)
	}
	b.NewChain("other", nil)
	b.NewChain("hide", &Hook{"nat", PostRouting, 100})
	b.NewRule("hide", Masquerade())
	b.NewChain("samples", &Hook{"nat", PreRouting, -100})
	for _, s := range samples {
		b.NewRule("samples", s.exprs...)
	}
	b.Add("frontends", Element{Key: at10, Comment: "shop/web:http cluster-ip"})
	b.Add("allowed", Element{Key: at10 + "\x0a\x02\x00\x00", KeyEnd: at10 + "\x0a\x02\x00\x09"})
	b.Add("numbers", Element{Key: at10, Data: mark(0x10002)})
	b.Add("known", Element{Key: mark(0x10002)})
	b.Add("numbered", Element{Key: mark(0x10002) + "\x0a\x02\x00\x01"})
	b.Add("endpoints", Element{Key: at10 + mark(7), Data: "\x0a\x09\x00\x01\x1f\x90\x00\x00"})
	b.Add("sticky", Element{Key: "\x0a\x02\x00\x01", Data: "\x0a\x09\x00\x01\x1f\x90\x00\x00", Left: 30 * time.Minute})
	send(t, c, b)
	t.Cleanup(func() {
		b := NewBatch(IPv4, "ours")
		b.DeleteTable()
		_ = c.Send(context.Background(), b)
	})
}
