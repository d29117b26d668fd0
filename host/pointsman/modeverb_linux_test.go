// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
)

// TestAwaitSwap waits for a swap from iptables to nftables, and reports its result.
func TestAwaitSwap(t *testing.T) {
	began := time.Now()
	later := began.Add(time.Second)
	swapped := func(failure string) *admin.Swapped {
		return &admin.Swapped{From: "iptables", To: "nftables", At: later, Error: failure}
	}
	for name, c := range map[string]struct {
		mode admin.Mode
		want string // the output and the error
	}{
		"it drains": {admin.Mode{Wanted: "nftables", Swap: &admin.Swap{From: "iptables", To: "nftables", Stage: "draining", Began: later}},
			"nftables serves; iptables drains\n"},
		"it has ended": {admin.Mode{Wanted: "nftables", Last: swapped("")}, "nftables serves\n"},
		"another mode was requested": {admin.Mode{Wanted: "ipvs"},
			"another mode was requested meanwhile: ipvs"},
		"another mode was requested, and then this one again": {admin.Mode{Wanted: "nftables", Last: swapped(admin.Superseded), Swap: &admin.Swap{From: "iptables", To: "nftables", Stage: "staging", Began: later}},
			"another mode was requested"},
		"it is being undone": {admin.Mode{Wanted: "nftables", Swap: &admin.Swap{From: "iptables", To: "nftables", Stage: "draining", Began: later, Undo: "no room", Flows: 1}},
			"the swap to nftables was undone, and iptables continues to serve: no room; nftables still drains"},
		"it was undone": {admin.Mode{Wanted: "nftables", Last: swapped("no room")}, "the swap to nftables was undone, and iptables continues to serve: no room"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := []admin.Mode{{Wanted: "nftables", Last: &admin.Swapped{To: "nftables", At: began.Add(-time.Minute)}}, c.mode} // first a former swap
			client := admin.NewClient(answering(t, admin.Backend{Mode: func() admin.Mode {
				m := answers[0]
				answers = answers[len(answers)-1:]
				return m
			}}))
			var out bytes.Buffer
			if err := awaitSwap(t.Context(), client, "nftables", false, began, time.Minute, &out); err != nil {
				out.WriteString(err.Error())
			}
			if out.String() != c.want {
				t.Errorf("got %q, want %q", out.String(), c.want)
			}
		})
	}
}
