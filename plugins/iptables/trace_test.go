// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/plugins/internal/rules"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

func nodeOf(family sdk.Family, node sdk.Node) nodeConfig {
	return nodeConfig{family: family, node: node, localhost: frame.Localhost(family, node)}
}

// piecesOf returns the rules of services, on a node that has no other Services.
func piecesOf(of sdk.Family, node sdk.Node, services []sdk.Service) map[sdk.Name]rules.Piece {
	f := &family{many: func() int { return len(services) }}
	pieces := make(map[sdk.Name]rules.Piece)
	for _, svc := range services {
		if svc.Name.Family == of {
			pieces[svc.Name] = want(svc, node, f.hasComments(svc))
		}
	}
	return pieces
}

// packet is what p looks like to the tables of node. A caller on the node has no
// interface; others come in by theirs.
func packet(p sdktest.Packet, node sdk.Node) oracle.Packet {
	in := cmp.Or(p.Interface, "eth0")
	if p.From.From == sdk.OnNode {
		in = ""
	}
	return oracle.Packet{
		Protocol: p.Protocol.String(),
		From:     netip.AddrPortFrom(p.From.Addr, 40000),
		To:       p.To,
		In:       in,
		Local: func(a netip.Addr) bool {
			return slices.Contains(node.Addrs, a) || a.IsLoopback() || p.From.From == sdk.OnNode && a == p.From.Addr
		},
	}
}

// trace returns the paths of a packet through a node that has only these rules.
func trace(rules *oracle.Rules, p oracle.Packet) ([]oracle.Path, error) {
	return oracle.Node{Bases: rules.Bases()}.Walk(p)
}

// outcome is what becomes of p, as the tables have it.
func outcome(t *testing.T, tables iptables.Tables, p sdktest.Packet, node sdk.Node) sdktest.Outcome {
	t.Helper()
	paths, err := trace(oracle.IPTables(tables), packet(p, node))
	if err != nil {
		t.Fatal(err)
	}
	var o sdktest.Outcome
	chance := 0.0
	masquerade := 0
	for _, path := range paths {
		chance += path.Chance
		switch {
		case path.Verdict == oracle.Reject:
			o.Verdict = sdk.Reject
		case path.Verdict == oracle.Drop:
			o.Verdict = sdk.Drop
		case !path.Translated:
			o.Unserved = true
		default:
			o.Verdict = sdk.Forward
			o.Endpoints = append(o.Endpoints, path.To)
			if even := 1 / float64(len(paths)); math.Abs(path.Chance-even) > 1e-6 {
				t.Errorf("%s: the chance of %s is %f, not %f", p.Text, path.To, path.Chance, even)
			}
			if path.Masquerade {
				masquerade++
				o.Hairpin = append(o.Hairpin, path.To)
			}
		}
	}
	if math.Abs(chance-1) > 1e-6 {
		t.Errorf("%s: the chances come to %f", p.Text, chance)
	}
	if masquerade == len(paths) && masquerade > 0 && (len(paths) > 1 || p.Want.Masquerade) {
		o.Masquerade, o.Hairpin = true, nil
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	slices.SortFunc(o.Hairpin, netip.AddrPort.Compare)
	return o
}

// Every packet of every scenario goes where it should, as far as the rules' own
// meaning tells. No kernel is needed.
func TestScenariosTraced(t *testing.T) {
	for _, s := range sdktest.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			tables := map[sdk.Family]iptables.Tables{
				sdk.IPv4: tablesOf(t, sdk.IPv4, s.Node, s.Services).tables(),
				sdk.IPv6: tablesOf(t, sdk.IPv6, s.Node, s.Services).tables(),
			}
			for _, p := range s.Packets {
				got := outcome(t, tables[sdk.FamilyOf(p.To.Addr())], p, s.Node)
				if !got.Equal(p.Want) {
					t.Errorf("line %d, %s: found %s", p.Line, p.Text, got)
					paths, _ := trace(oracle.IPTables(tables[sdk.FamilyOf(p.To.Addr())]), packet(p, s.Node))
					t.Logf("%+v", paths[0])
				}
			}
		})
	}
}
