// SPDX-License-Identifier: Apache-2.0

package admin

import "testing"

func TestDestination(t *testing.T) {
	for _, c := range []struct{ frontend, network, want string }{
		{"cluster-ip 10.96.0.10:80", "tcp4", "10.96.0.10:80"},
		{"cluster-ip [fd00::1]:53", "udp6", "[fd00::1]:53/udp"},
		{"load-balancer-ip 192.0.2.1:99 local", "sctp4", "192.0.2.1:99/sctp"},
		{"node-port *:30080 local", "tcp4", ""},
		{"", "tcp4", ""},
	} {
		if got, ok := (Port{Network: c.network}).Destination(c.frontend); got != c.want || ok != (c.want != "") {
			t.Errorf("%q of %s is sent to as %q, want %q", c.frontend, c.network, got, c.want)
		}
	}
}
