// SPDX-License-Identifier: Apache-2.0

package iptables

import "testing"

func TestRemembered(t *testing.T) {
	for line, want := range map[string]string{
		"src=10.0.0.9 ttl: 64 last_seen: 4294906217 oldest_pkt: 1 4294906217\n":                               "10.0.0.9",
		"src=2001:0db8:0000:0000:0000:0000:0000:0007 ttl: 0 last_seen: 4294906217 oldest_pkt: 1 4294906217\n": "2001:db8::7",
		"dst=10.0.0.9 ttl: 64\n": "",
		"\n":                     "",
	} {
		got := ""
		if addr, ok := parseRecent(line); ok {
			got = addr.String()
		}
		if got != want {
			t.Errorf("client of %q is %q, want %q", line, got, want)
		}
	}
}
