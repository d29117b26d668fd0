// SPDX-License-Identifier: Apache-2.0

package admin

import (
	"strings"
	"testing"
)

func TestParseQuestion(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"10.244.1.7", "10.96.0.10:80", "any 10.244.1.7 10.96.0.10:80 tcp"},
		{"::ffff:10.244.1.7", "10.96.0.10:53/UDP", "any 10.244.1.7 10.96.0.10:53 udp"},
		{"node", "[fd00::1]:80/sctp", "node invalid IP [fd00::1]:80 sctp"},
		{"node:192.0.2.10", "10.96.0.10:80", "node 192.0.2.10 10.96.0.10:80 tcp"},
		{"pod:fd00::7", "[fd00::1]:80", "pod fd00::7 [fd00::1]:80 tcp"},
		{"outside:198.51.100.7", "192.0.2.10:30080", "outside 198.51.100.7 192.0.2.10:30080 tcp"},
		{"fd00::7", "[fd00::1]:80", "any fd00::7 [fd00::1]:80 tcp"},
		{"shop/web-7d4kx", "10.96.0.10:80", "any invalid IP 10.96.0.10:80 tcp shop/web-7d4kx"},
		{"pod:shop/web-7d4kx", "[fd00::1]:80", "any invalid IP [fd00::1]:80 tcp shop/web-7d4kx"},
		{"shop/web/7d4kx", "10.96.0.10:80", `"shop/web/7d4kx" is not a caller: want an address, node, pod:ADDRESS or outside:ADDRESS`},
		{"/web", "10.96.0.10:80", `"/web" is not a caller`},
		{"node:shop/web", "10.96.0.10:80", `"node:shop/web" is not a caller`},
		{"web", "10.96.0.10:80", `"web" is not a caller: want an address, node, pod:ADDRESS or outside:ADDRESS`},
		{"", "10.96.0.10:80", `"" is not a caller`},
		{"pod:", "10.96.0.10:80", `"pod:" is not a caller: want an address after pod:`},
		{"fe80::1%eth0", "[fd00::1]:80", `is not a caller`},
		{"10.0.0.1", "10.96.0.10", `"10.96.0.10" is not a destination: want ADDRESS:PORT, such as`},
		{"10.0.0.1", "10.96.0.10:0", `is not a destination`},
		{"10.0.0.1", "web:80", `is not a destination`},
		{"10.0.0.1", "shop/web:80", `shop/web:80 is no address: want one at which the Service is reached; try: pointsman service show shop/web`},
		{"10.0.0.1", "10.96.0.10/udp", `is not a destination`},
		{"10.0.0.1", "10.96.0.10:80/icmp", `has no protocol of Services: want tcp, udp or sctp`},
		{"10.0.0.1", "[fd00::1]:80", "10.0.0.1 and fd00::1 are in different IP families"},
	} {
		q, err := ParseQuestion(tt.from, tt.to)
		got := strings.Join([]string{q.Caller, q.From.String(), q.To.String(), q.Protocol, q.Pod}, " ")
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) && (err == nil || !strings.Contains(got, tt.want)) {
			t.Errorf("%q to %q: %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
}

// TestExplainOverTheSocket: the host parses the question, too, and refuses an invalid one.
func TestExplainOverTheSocket(t *testing.T) {
	c := NewClient(serve(t))
	x, err := c.Explain(t.Context(), "pod:10.244.1.7", "10.96.0.10:53/udp", true)
	if err != nil || x.Kind != "Explanation" || x.Verdict != "forward" || x.Caller != CallerPod || x.To.Port() != 53 || !x.Try {
		t.Errorf("%+v, %v", x, err)
	}
	if _, err := c.Explain(t.Context(), "web", "10.96.0.10:80", false); err == nil || !strings.Contains(err.Error(), "is not a caller") {
		t.Errorf("without a valid caller: %v", err)
	}
}
