// SPDX-License-Identifier: Apache-2.0

package sdk

import (
	"fmt"
	"net/netip"
	"testing"
)

// many returns a Full of n Services with ten endpoints each.
func many(n int) Update {
	u := Update{To: 1, Full: true}
	for i := range n {
		u.Set = append(u.Set, oneOf(i, 10))
	}
	return u
}

// oneOf returns the i-th Service, with that number of endpoints.
func oneOf(i, endpoints int) Service {
	at := func(a byte, port uint16) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{a, byte(i >> 16), byte(i >> 8), byte(i)}), port)
	}
	s := Service{
		Name:      Name{Namespace: fmt.Sprintf("namespace-%d", i%100), Service: fmt.Sprintf("service-%d", i), Port: "http", Protocol: TCP, Family: IPv4},
		Frontends: []Frontend{{Kind: ClusterIP, Policy: Cluster, Addr: at(172, 80)}},
	}
	for n := range endpoints {
		s.Cluster = append(s.Cluster, Endpoint{Addr: at(10+byte(n), 8080)})
	}
	return s
}

// turning returns a function that changes one Service in a State of n.
func turning(tb testing.TB, n int) func() {
	var s State
	if _, err := s.Apply(many(n)); err != nil {
		tb.Fatal(err)
	}
	s.Confirm()
	rounds := [2][]Service{{oneOf(7, 9)}, {oneOf(7, 10)}}
	i := 0
	return func() {
		c, err := s.Apply(Update{From: s.Revision(), To: s.Revision() + 1, Set: rounds[i%2]})
		i++
		if err != nil || len(c.Services) != 1 {
			tb.Fatalf("%d changes, %v", len(c.Services), err)
		}
		s.Confirm()
	}
}

func TestCostOfApply(t *testing.T) {
	few, lots := testing.AllocsPerRun(200, turning(t, 100)), testing.AllocsPerRun(200, turning(t, 10_000))
	if few != lots {
		t.Errorf("one Service changes: %v allocations in a State of 100, %v in one of 10,000", few, lots)
	}
}
