// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"log/slog"
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
// removed in with the others.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	for _, c := range []struct {
		endpoints      int
		refused, apart bool
	}{
		{100, false, false},
		{Ceiling, false, true},
		{Ceiling + 1, true, false},
	} {
		f := familyOf(sdk.IPv4)
		svc := large(endpoints(c.endpoints))
		d, err := f.Want(svc)
		var refusal *sdk.Refusal
		refused := errors.As(err, &refusal) && refusal.Field != "" && refusal.Try != ""
		if refused != c.refused {
			t.Errorf("%d endpoints: %v", c.endpoints, err)
		}
		if refused {
			continue
		}
		next, left := f.Divide(svc.Name, d, false)
		if apart := left > 0; apart != c.apart || apart && !next.Empty() || !apart && len(next.Chains) != len(d.Chains) {
			t.Errorf("%d endpoints: %d lines are left after %d chains", c.endpoints, left, len(next.Chains))
		}
	}
}

// familyOf is a family that writes nothing.
func familyOf(of sdk.Family) *family {
	f := newFamily(iptables.Tool{Family: of, Backend: iptables.NFT}, options{LocalhostNodePorts: true}, new(iptables.Losses), slog.New(slog.DiscardHandler))
	f.rules.setNode(nodeOf(of, sdk.Node{MasqueradeBit: 14}))
	return f
}

// What a large Service needs is written in slices, the endpoints' chains before the parts
// that lead to them, and at the end its own chains and its entries.
func TestALargeServiceIsDivided(t *testing.T) {
	f := familyOf(sdk.IPv4)
	svc := large(endpoints(20_000))
	d, err := f.Want(svc)
	if err != nil {
		t.Fatal(err)
	}
	slices, last := 0, 0
	for left := 1; left > 0; slices++ {
		var next ruleset.Desired
		next, left = f.Divide(svc.Name, d, true)
		f.Put(map[sdk.Name]ruleset.Desired{svc.Name: next})
		written := f.rules.Plan()
		if left > 0 && len(next.Entries) > 0 {
			t.Fatal("packets are led to what is not there yet")
		}
		for _, block := range written {
			if n := ruleset.Lines(block.Whole); n > f.rules.slice()+2*len(d.Chains[0].Rules)+1000 {
				t.Errorf("slice %d has %d lines", slices, n)
			}
			for _, c := range block.Whole {
				if isSpare(c.ID) && rank(c) < last {
					t.Fatalf("%s is written after a chain that leads there", c.ID)
				}
			}
		}
		for _, block := range written {
			for _, c := range block.Whole {
				if isSpare(c.ID) {
					last = max(last, rank(c))
				}
			}
		}
		f.rules.Done(written)
		f.rules.Settled()
	}
	if slices < 4 || len(f.Pieces()[svc.Name].Chains) != len(d.Chains) {
		t.Errorf("in %d slices it has %d of %d chains", slices, len(f.Pieces()[svc.Name].Chains), len(d.Chains))
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
