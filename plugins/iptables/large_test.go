// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"errors"
	"log/slog"
	"net/netip"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/rulestest"
	"github.com/pointsman/pointsman/sdk"
)

// large returns a Service with n endpoints.
func large(n int) sdk.Service {
	svc := service(1, sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.AddrPortFrom(v4(base+1), 80)})
	svc.Cluster = endpoints(n)
	return svc
}

// A Service with too many endpoints is refused, because one call could not write them in reasonable time.
func TestTooManyEndpointsAreRefused(t *testing.T) {
	f, _ := familyOf(sdk.IPv4)
	if _, err := f.Want(large(Ceiling)); err != nil {
		t.Error(err)
	}
	if _, err := f.Want(large(Ceiling + 1)); !errors.As(err, new(*sdk.Refusal)) {
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
