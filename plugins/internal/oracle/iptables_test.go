// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
)

// TestRedirect: the destination of REDIRECT is known only for packets of the node's own processes.
func TestRedirect(t *testing.T) {
	const rule iptables.Rule = "-p tcp -m tcp --dport 80 -j REDIRECT --to-ports 1002"
	tracer := IPTables(iptables.Tables{{Table: "nat", Chain: "PREROUTING"}: {rule}, {Table: "nat", Chain: "OUTPUT"}: {rule}})
	p := Packet{Protocol: "tcp", From: netip.MustParseAddrPort("10.0.0.1:999"), To: netip.MustParseAddrPort("10.0.0.2:80")}

	paths, err := tracer.At(p, Hook{Table: "nat", Chain: "OUTPUT"})
	if err != nil || len(paths) != 1 || paths[0].To != netip.MustParseAddrPort("127.0.0.1:1002") {
		t.Errorf("a process of the node: %+v, %v", paths, err)
	}
	p.In = "eth0"
	var unknown *Unknown
	if paths, err := tracer.At(p, Hook{Table: "nat", Chain: "PREROUTING"}); !errors.As(err, &unknown) || unknown.Step.Rule != string(rule) {
		t.Errorf("a packet from outside: %+v, %v", paths, err)
	}
}
