// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"testing"

	"github.com/pointsman/pointsman/host/reach"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// TestScenarios checks that the host derives the Services and the node of each scenario of sdktest from its Kubernetes
// objects.
func TestScenarios(t *testing.T) {
	for _, s := range sdktest.Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			if s.Manifests == nil {
				t.Skip("the scenario has no manifests")
			}
			tracker := track.New(nil)
			tracker.Configure(facts(s.Node))
			for _, o := range parseAll(t, s.Name+".yaml", s.Manifests) {
				sinks(tracker)[o.id.kind].set(o.value)
			}
			tracker.Synced()
			u, _ := tracker.Cursor(sdk.Description{Name: "all", Features: sdk.Features}).Next()
			if got, want := describe(u.Set), describe(s.Services); got != want {
				t.Errorf("%s\nbecomes\n%s\nwant\n%s", s.Manifests, got, want)
			}
			if !u.Node.Equal(s.Node) {
				t.Errorf("the node is\n%+v\nwant\n%+v", *u.Node, s.Node)
			}
		})
	}
}

// facts returns the settings for this node. Services may have its addresses as external IPs.
func facts(n sdk.Node) track.Facts {
	return track.Facts{
		NodeName: n.Name, NodeAddrs: n.Addrs, NodePorts: n.NodePorts, Pods: n.Pods,
		MasqueradeAll: n.MasqueradeAll, MasqueradeBit: n.MasqueradeBit,
		ServiceCIDRs: n.ServiceCIDRs, Conntrack: n.Conntrack, NodeAddresses: reach.ServeNodeAddresses,
	}
}
