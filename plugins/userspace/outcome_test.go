// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// How likely each endpoint is, and that none is reached. An endpoint is written as the share of what arrives there.
func TestShares(t *testing.T) {
	const stopped, unsent = "s", "u" // what becomes of the rest; else it is lost on its way
	for _, tt := range []struct {
		why      string
		protocol sdk.Protocol
		kept     int // 1: the first endpoint
		tries    string
		want     string
	}{
		{"all are reached", sdk.TCP, 0, "1 1 1 1", "0.25 0.25 0.25 0.25 none 0"},
		{"one is not", sdk.TCP, 0, "1 0l 1", "0.5 0 0.5 none 0"},
		{"none is", sdk.TCP, 0, "0l 0s", "0 0 none 1"},
		{"the only one is not", sdk.TCP, 0, "0u", "0 none 1"},
		{"three of five: the fourth attempt finds one", sdk.TCP, 0, "0l 0l 1 0l 1", "0 0 0.5 0 0.5 none 0"},
		{"four of five", sdk.TCP, 0, "0l 0l 0l 0l 1", "0 0 0 0 0.8 none 0.2"},
		{"a client that is kept", sdk.TCP, 2, "1 1 1", "0 1 0 none 0"},
		{"where it cannot be", sdk.TCP, 2, "1 0l 1", "0.5 0 0.5 none 0"},
		{"nowhere", sdk.TCP, 2, "0l 0l 0l", "0 0 0 none 1"},
		{"by chance", sdk.TCP, 0, "0.5l", "0.938 none 0.0625"},
		{"by chance, and others are reached", sdk.TCP, 0, "0.5l 1", "0.333 0.667 none 0"},
		{"UDP", sdk.UDP, 0, "1 1", "0.5 0.5 none 0"},
		{"UDP that cannot be sent is sent elsewhere", sdk.UDP, 0, "1 0s", "1 0 none 0"},
		{"but once", sdk.UDP, 0, "1 0s 0s", "0.667 0 0 none 0.333"},
		{"UDP that is lost is lost", sdk.UDP, 0, "1 0l", "0.5 0 none 0.5"},
		{"UDP without a route is lost", sdk.UDP, 0, "1 0u", "0.5 0 none 0.5"},
		{"the only one of UDP", sdk.UDP, 0, "0s", "0 none 1"},
		{"a client of UDP that is kept", sdk.UDP, 1, "0s 1 1", "0 0.5 0.5 none 0"},
	} {
		o := outcome{protocol: tt.protocol, seen: relay.Foreseen{Attempts: 4}}
		for i, word := range strings.Fields(tt.tries) {
			rest := strings.TrimRight(word, "slu")
			var reached float64
			fmt.Sscan(rest, &reached)
			ep := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i))
			if tt.kept == i+1 {
				o.seen.Kept = ep
			}
			how := word[len(rest):]
			o.tries = append(o.tries, try{ep, []hooks.End{
				{Way: sdk.Way{Verdict: sdk.Forward, Share: reached}},
				{Way: sdk.Way{Verdict: sdk.Drop, Share: 1 - reached}, Stopped: how == stopped, Unsent: how == unsent},
			}})
		}
		each, none := o.shares()
		got := ""
		for _, share := range each {
			got += fmt.Sprintf("%.3g ", share)
		}
		if got += fmt.Sprintf("none %.3g", none); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.why, got, tt.want)
		}
	}
}

// Of many endpoints, only some ways say which rules decided, and only some endpoints are named.
func TestWaysAreBounded(t *testing.T) {
	o := outcome{protocol: sdk.TCP, seen: relay.Foreseen{Attempts: 4}}
	for i := range 100 {
		verdict := sdk.Forward
		if i%10 == 0 {
			verdict = sdk.Drop
		}
		ep := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), uint16(i+1))
		o.tries = append(o.tries, try{ep, []hooks.End{{Way: sdk.Way{Verdict: verdict, To: ep, Share: 1, Rules: []string{"a rule"}}}}})
	}
	traced := merged(o.ways(hooks.End{Way: sdk.Way{Share: 1}}, "tcp 192.0.2.1:1"))
	sum, rules := 0.0, 0
	for _, w := range traced.Ways {
		sum += w.Share
		if len(w.Rules) > 0 {
			rules++
		}
		if len(w.Rules) > 8 {
			t.Errorf("%d rules decided", len(w.Rules))
		}
	}
	if len(traced.Ways) != 91 || rules != withRules || sum < 0.999 || sum > 1.001 {
		t.Errorf("%d ways, %d with rules, shares of %g", len(traced.Ways), rules, sum)
	}
}
