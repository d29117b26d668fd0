// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
)

// large returns a Service with these endpoints, each of which may be a client of the Service.
func large(all []sdk.Endpoint) sdk.Service {
	svc := service(60_000, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+60_000), 80)})
	svc.Cluster = slices.Clone(all)
	for i := range svc.Cluster {
		svc.Cluster[i].OnNode = true
	}
	return svc
}

// A Service with too many endpoints is refused with a hint, because one call could not write them in reasonable time.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	f, _ := familyOf(sdk.IPv4)
	if d, err := f.Want(large(endpoints(Ceiling))); err != nil || len(d.Chains) < Ceiling {
		t.Errorf("a Service with %d endpoints has %d chains, %v", Ceiling, len(d.Chains), err)
	}
	_, err := f.Want(large(endpoints(Ceiling + 1)))
	if refusal, ok := errors.AsType[*sdk.Refusal](err); !ok || refusal.Field == "" || refusal.Why == "" || refusal.Try == "" {
		t.Errorf("with one endpoint too many: %v", err)
	}
}

// familyOf returns a family that writes to fake tables.
func familyOf(of sdk.Family) (*family, fakeRules) {
	fake := rulestest.NewFake(nat(markMasq))
	f := newFamily(iptables.Tool{Family: of, Backend: "fake", Kernel: fake}, options{LocalhostNodePorts: true}, frame.Env{Log: slog.New(slog.DiscardHandler), Services: func() int { return 0 }})
	f.rules.setNode(nodeOf(of, sdk.Node{MasqueradeBit: 14}))
	return f, fakeRules{f.rules, fake}
}
