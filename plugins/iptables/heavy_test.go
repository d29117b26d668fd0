// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/ruleset"
	"github.com/pointsman/pointsman/sdk"
)

// large is a Service with endpoints that may call themselves.
func large(all []sdk.Endpoint) sdk.Service {
	svc := service(60_000, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+60_000), 80)})
	svc.Cluster = slices.Clone(all)
	for i := range svc.Cluster {
		svc.Cluster[i].OnNode = true
	}
	return svc
}

// A Service with more endpoints than any node is to have is refused, with what to do, and
// nothing of it is written; one with as many as that is set apart, and one that is small
// goes in with the others.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	for _, c := range []struct {
		endpoints               int
		refused, apart, written bool
	}{
		{100, false, false, true},
		{Ceiling, false, true, false},
		{Ceiling + 1, true, false, false},
	} {
		s := newSide(iptables.Tool{Family: sdk.IPv4, Backend: iptables.NFT})
		svc := large(endpoints(c.endpoints))
		state := sdk.State{Services: map[sdk.Name]sdk.Service{svc.Name: svc}}
		pieces := map[sdk.Name]ruleset.Desired{svc.Name: want(svc, sdk.Node{MasqueradeBit: 14})}
		failed := s.setApart(pieces, state, true)
		var refusal *sdk.Refusal
		refused := len(failed) == 1 && failed[0].Name == svc.Name && errors.As(failed[0].Err, &refusal) && refusal.Field != "" && refusal.Try != ""
		_, written := pieces[svc.Name]
		if apart := s.rests[svc.Name] != nil; refused != c.refused || apart != c.apart || written != c.written {
			t.Errorf("%d endpoints: refused: %t, set apart: %t, written: %t; %v", c.endpoints, refused, apart, written, failed)
		}
	}
}

// When there is no time for a large Service it is named, with what is left; and what it
// needs is still to be written, the endpoints' chains before the parts that lead to them.
func TestALargeServiceThatHasNoTime(t *testing.T) {
	s := newSide(iptables.Tool{Family: sdk.IPv4, Backend: iptables.NFT})
	s.setNode(nodeOf(sdk.IPv4, sdk.Node{}))
	svc := large(endpoints(20_000))
	p := want(svc, sdk.Node{MasqueradeBit: 14})
	s.setApart(map[sdk.Name]ruleset.Desired{svc.Name: p}, sdk.State{Services: map[sdk.Name]sdk.Service{svc.Name: svc}}, false)
	failed, err := s.bringAll(t.Context(), []sdk.Name{svc.Name}, func() bool { return false })
	if err != nil || len(failed) != 1 || failed[0].Err == nil {
		t.Fatalf("%v, %v", failed, err)
	}
	below := s.rests[svc.Name].below
	if len(below) != len(p.Chains)-1 { // all but its own
		t.Errorf("of %d chains %d are to be written first", len(p.Chains), len(below))
	}
	for i := range below[1:] {
		if rank(below[i]) > rank(below[i+1]) {
			t.Fatalf("%s is written before %s", below[i].ID, below[i+1].ID)
		}
	}
}

// Of chains that are of no use any more a plan removes as many as it may, and first those
// that others may lead to.
func TestManyThatGoAreRemovedInSteps(t *testing.T) {
	svc := large(endpoints(2000))
	svc.Affinity = time.Hour
	b := tablesOf(sdk.IPv4, sdk.Node{MasqueradeBit: 14}, []sdk.Service{svc})
	b.Done(b.Plan())
	b.Settled()
	const limit = 300
	b.LimitRemovals(limit)
	b.PutAll(map[sdk.Name]ruleset.Desired{svc.Name: {}})
	before, steps, last := len(b.ObservedAll()), 0, 4
	for b.Pending() {
		p := b.Plan()
		for _, block := range p {
			if len(block.Remove) > limit {
				t.Fatalf("step %d removes %d chains", steps, len(block.Remove))
			}
			most := 0
			for _, id := range block.Remove {
				most = max(most, rank(iptables.Chain{ID: id}))
			}
			if len(block.Remove) > 0 && most > last {
				t.Errorf("step %d removes a chain of rank %d, after one of %d", steps, most, last)
			} else if len(block.Remove) > 0 {
				last = most
			}
		}
		b.Done(p)
		b.Settled()
		steps++
	}
	if gone := before - len(b.ObservedAll()); gone <= 2000 || steps < gone/limit {
		t.Errorf("%d chains are gone in %d steps", gone, steps)
	}
}
