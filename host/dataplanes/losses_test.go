// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/track"
	"github.com/pointsman/pointsman/sdk"
)

func service(name string) sdk.Name {
	return sdk.Name{Namespace: "shop", Service: name, Protocol: sdk.TCP, Family: sdk.IPv4}
}

// TestLosses returns the Services that the next dataplane would not serve, and the serving one does.
func TestLosses(t *testing.T) {
	now := track.CursorStatus{
		Failed: []sdk.Failure{{Name: service("broken"), Err: errors.New("no room")}},
	}
	next := track.CursorStatus{
		Failed:   []sdk.Failure{{Name: service("broken"), Err: errors.New("no room")}, {Name: service("fresh"), Err: errors.New("no room")}, {Name: sdk.Name{Namespace: canary.Namespace, Service: "canary"}, Err: errors.New("taken")}},
		Withheld: []track.Withheld{{Name: service("phone"), Lacks: []sdk.Feature{"sctp"}}},
	}
	want := []string{"shop/fresh/tcp4: no room", "shop/phone/tcp4: the dataplane does not support sctp"}
	if got := losses(now, next); !slices.Equal(got, want) {
		t.Errorf("a swap loses %q, want %q", got, want)
	}
}

// TestTaken: a swap to a dataplane that takes addresses would intercept the ClusterIP of NodeLocal DNS, unless the serving
// dataplane does so too, or listens there itself.
func TestTaken(t *testing.T) {
	dns := netip.MustParseAddr("172.30.0.10")
	tracker := track.New(nil)
	tracker.SetService(clusterService("web", netip.MustParseAddr("172.30.0.1"), corev1.ProtocolTCP))
	tracker.SetService(clusterService("dns", dns, corev1.ProtocolUDP))
	onNode := clusterService("canary-on-node", netip.MustParseAddr("192.0.2.1"), corev1.ProtocolTCP)
	onNode.Namespace = canary.Namespace // of the host's own, at the node's address
	tracker.SetService(onNode)
	tracker.Synced()
	with := func(limits ...sdk.Limit) sdk.Description { return sdk.Description{Limits: limits} }
	nodeLocal := map[netip.Addr]string{dns: "nodelocaldns", netip.MustParseAddr("192.0.2.1"): "eth0"}
	const held = "interface nodelocaldns has the ClusterIP 172.30.0.10 of Service shop/dns"
	for _, c := range []struct {
		what       string
		from, to   sdk.Description
		interfaces map[netip.Addr]string
		want       string
	}{
		{"to a dataplane that takes addresses", with(), with(sdk.LimitTakesAddresses), nodeLocal, held},
		{"without NodeLocal DNS", with(), with(sdk.LimitTakesAddresses), nil, ""},
		{"to a dataplane that takes no addresses", with(), with(), nodeLocal, ""},
		{"between two dataplanes that take addresses", with(sdk.LimitTakesAddresses), with(sdk.LimitTakesAddresses), nodeLocal, ""},
		{"from a dataplane that listens there", with(sdk.LimitOwnAddressesOnly), with(sdk.LimitTakesAddresses), nodeLocal, ""},
	} {
		if got := interceptedClusterIP(c.from, c.to, tracker.All(), func() map[netip.Addr]string { return c.interfaces }); got != c.want {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}
