// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

func do(v nftnl.Verdict) []nftnl.Expr { return []nftnl.Expr{nftnl.Do(v)} }

// from returns the paths of a TCP packet through a table. in is empty if a process of the node sends it.
func from(t *testing.T, table Table, in, source, dest string) ([]Path, error) {
	t.Helper()
	node := netip.MustParseAddr("192.0.2.10")
	rules := NFTables(table)
	var n Node
	for name, c := range table.Chains {
		if c.Hook != nil {
			at := func(p Packet) ([]Path, error) { return rules.At(p, name) }
			n.Bases = append(n.Bases, Base{Hook: c.Hook.At, Priority: c.Hook.Priority, NAT: c.Hook.Type == "nat", At: at})
		}
	}
	Sort(n.Bases)
	paths, err := n.Walk(Packet{
		Protocol: "tcp", From: netip.MustParseAddrPort(source), To: netip.MustParseAddrPort(dest), In: in,
		Local: func(a netip.Addr) bool { return a == node },
	})
	return Merge(paths), err
}

// endOf returns the end of a packet's only path.
func endOf(t *testing.T, table Table, in, source, dest string) string {
	t.Helper()
	paths, err := from(t, table, in, source, dest)
	if err != nil || len(paths) != 1 || paths[0].Chance != 1 {
		t.Fatalf("%v, %v", paths, err)
	}
	text := fmt.Sprintf("= %s %s", paths[0].Verdict, paths[0].To)
	if paths[0].Masquerade {
		text += " masquerade"
	}
	return text
}

const client, service = "198.18.0.7:40000", "172.30.0.1:80"

// key returns a key of the map endpoints of four.
func key(port uint16, slot uint32) string {
	return string([]byte{172, 30, 0, 1, byte(port >> 8), byte(port), 0, 0}) + string(word(slot))
}

// four returns a table that draws one of four slots. If the slot is empty it draws once more, and then rejects.
func four(slots ...uint32) Table {
	t := Table{Elements: map[string][]nftnl.Element{"endpoints": nil}}
	for i, slot := range slots {
		t.Elements["endpoints"] = append(t.Elements["endpoints"], nftnl.Element{
			Key: key(80, slot), Data: string([]byte{10, 0, 0, byte(i + 1), 0x1f, 0x90, 0, 0}),
		})
	}
	try := []nftnl.Expr{
		nftnl.Payload(nftnl.Network, 16, 4, 0), nftnl.Payload(nftnl.Transport, 2, 2, 1),
		nftnl.Random(4, 2), nftnl.Find("endpoints", 0, 0), nftnl.DNAT(nftnl.IPv4, 0, 1),
	}
	t.Chains = map[string]Chain{
		"pre":  {Hook: &nftnl.Hook{Type: "nat", At: nftnl.PreRouting, Priority: -100}, Rules: [][]nftnl.Expr{do(nftnl.Jump("pick")), do(nftnl.Drop)}},
		"pick": {Rules: [][]nftnl.Expr{do(nftnl.Jump("try")), try, do(nftnl.Goto("no"))}},
		"try":  {Rules: [][]nftnl.Expr{try}},
		"no":   {Rules: [][]nftnl.Expr{{nftnl.Reset()}}},
	}
	return t
}

// Each endpoint has its share, whichever draw selects it.
func TestShares(t *testing.T) {
	for _, c := range []struct {
		slots []uint32
		each  float64
	}{{nil, 0}, {[]uint32{0, 1}, 0.375}, {[]uint32{0, 2, 3}, 0.3125}, {[]uint32{0, 1, 2, 3}, 0.25}} {
		paths, err := from(t, four(c.slots...), "eth0", client, service)
		if err != nil {
			t.Fatal(err)
		}
		refused := 1.0
		for _, p := range paths {
			if p.Verdict == Accept {
				refused -= c.each
				if p.Chance != c.each || !p.Translated || p.To.Port() != 8080 {
					t.Errorf("of %d: %+v by %f", len(c.slots), p, p.Chance)
				}
			} else if p.Verdict != Reject || p.Chance != refused && refused > 0 {
				t.Errorf("of %d: %+v by %f", len(c.slots), p, p.Chance)
			}
		}
		if want := len(c.slots) + 1; len(c.slots) < 4 && len(paths) != want {
			t.Errorf("of %d: %d ways", len(c.slots), len(paths))
		}
	}
}

// An expression that is not supported is an error with the position of its rule, for packets that reach the
// rule.
func TestUnknownRules(t *testing.T) {
	table := four(0)
	for _, c := range []struct {
		why  string
		rule []nftnl.Expr
	}{
		{"meta 99", []nftnl.Expr{nftnl.Meta(99, 0)}},
		{"there is no set none", []nftnl.Expr{nftnl.In("none", 0)}},
		{"2 bytes of header 1 from 2", []nftnl.Expr{nftnl.Payload(nftnl.Network, 2, 2, 0)}},
		{"ct 99 of direction 0", []nftnl.Expr{nftnl.CT(99, 0)}},
		{"a random number below 4 that is not part of a lookup key", []nftnl.Expr{nftnl.Random(4, 0), nftnl.Cmp(nftnl.Equal, 0, key(0, 0)[:4])}},
		{"a random number below 4 in a key of set endpoints", []nftnl.Expr{nftnl.Random(4, 0), nftnl.NotIn("endpoints", 0)}},
	} {
		table.Chains["no"] = Chain{Rules: [][]nftnl.Expr{append(c.rule, nftnl.Do(nftnl.Drop))}}
		_, err := from(t, table, "eth0", client, service)
		var unknown *Unknown
		if !errors.As(err, &unknown) || unknown.Error() != "chain no, rule 1: "+c.why {
			t.Errorf("%v, want %s", err, c.why)
		}
		if _, err := from(t, table, "", client, service); err != nil {
			t.Errorf("another packet: %v", err)
		}
	}
	table.Chains["no"] = Chain{Rules: [][]nftnl.Expr{{nftnl.Meta(99, 0)}, do(nftnl.Drop)}}
	if _, err := from(t, table, "eth0", client, service); err != nil {
		t.Errorf("a rule that decides nothing: %v", err)
	}
	table.Chains["no"] = Chain{Rules: [][]nftnl.Expr{do(nftnl.Jump("no"))}}
	if _, err := from(t, table, "eth0", client, service); err == nil {
		t.Error("a chain that jumps to itself is no error")
	}
}
