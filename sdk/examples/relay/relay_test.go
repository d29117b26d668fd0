// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/pointsman/pointsman/sdk"
)

// TestFailedServiceStays changes a Service to endpoints and frontends of which another program has one: the Service
// fails, and is served as before.
func TestFailedServiceStays(t *testing.T) {
	taken, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).AddrPort().Port()
	at := func(ip string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(ip), port) }
	name := sdk.Name{Namespace: "ns", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4}
	service := func(endpoint string, frontends ...string) sdk.State {
		svc := sdk.Service{Name: name, Cluster: []sdk.Endpoint{{Addr: at(endpoint)}}}
		for _, ip := range frontends {
			svc.Frontends = append(svc.Frontends, sdk.Frontend{Kind: sdk.ClusterIP, Addr: at(ip), Policy: sdk.Cluster})
		}
		return sdk.State{Services: map[sdk.Name]sdk.Service{name: svc}}
	}
	r := &relay{listeners: make(map[netip.AddrPort]*listener)}
	defer r.serve(t.Context(), sdk.Setup{}, sdk.State{})
	if err := r.serve(t.Context(), sdk.Setup{}, service("127.0.0.101", "127.0.0.2")); err != nil {
		t.Fatal(err)
	}
	before, _ := r.list(t.Context())
	err = r.serve(t.Context(), sdk.Setup{}, service("127.0.0.102", "127.0.0.2", "127.0.0.3", "127.0.0.1"))
	if failed, ok := errors.AsType[sdk.Failures](err); !ok || len(failed) != 1 || failed[0].Name != name {
		t.Errorf("beside another program's listener it returns %v", err)
	}
	equal := func(a, b sdk.Served) bool {
		return a.Frontend.Equal(b.Frontend) && slices.Equal(a.Endpoints, b.Endpoints)
	}
	if after, _ := r.list(t.Context()); len(before) != 1 || !slices.EqualFunc(before, after, equal) {
		t.Errorf("it serves %v, and before %v", after, before)
	}
}
