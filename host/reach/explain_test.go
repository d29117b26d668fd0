// SPDX-License-Identifier: Apache-2.0

package reach

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/pointsman/pointsman/sdk"
)

func TestExplain(t *testing.T) {
	for _, tt := range []struct {
		endpoints string
		want      string // of the first one: not in Cluster; not in Local
	}{
		{"10.0.0.1 n1", ""},
		{"10.0.0.1 n2", "; it is on node n2"},
		{"10.0.0.1", "; its node is not given"},
		{"10.0.0.1 n1 unready", "it is not ready; it is not ready"},
		{"10.0.0.1 n1 gone", "it terminates, and does not serve any more; it terminates, and does not serve any more"},
		{"10.0.0.1 n1 terminating", ""},
		{"10.0.0.1 n1 terminating, 10.0.0.2 n1", "it terminates, and others are ready; it terminates, and others are ready"},
		{"10.0.0.1 n1 terminating, 10.0.0.2 n2", "it terminates, and others are ready"},
		{"10.0.0.1 n1 zone=z2, 10.0.0.2 n2 zone=z1", "it is hinted for zone z2, and this zone is z1"},
		{"10.0.0.1 n2 zone=z2,z3, 10.0.0.2 n2 zone=z1", "it is hinted for zone z2, z3, and this zone is z1; it is on node n2"},
		{"10.0.0.1 n2 node=n2, 10.0.0.2 n1 node=n1", "it is hinted for node n2, and this node is n1; it is on node n2"},
		{"10.0.0.1 n1 zone=z2, 10.0.0.2 n2", ""}, // one missing hint disables hints
	} {
		records := read(slice("http", 8080, strings.Split(tt.endpoints, ", ")...))
		explained := Explain(records, Port{Name: "http", Protocol: sdk.TCP}, sdk.IPv4, here)
		got := strings.TrimSuffix(explained[0].NotCluster+"; "+explained[0].NotLocal, "; ")
		if got != tt.want {
			t.Errorf("%s: %q, want %q", tt.endpoints, got, tt.want)
		}
	}
}

// TestExplainAsChosen: Explain gives reasons for exactly those endpoints that Choose does not choose.
func TestExplainAsChosen(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 1))
	one := func(of ...string) string { return of[random.IntN(len(of))] }
	for range 2000 {
		var endpoints []string
		for range random.IntN(6) {
			endpoints = append(endpoints, fmt.Sprintf("10.0.0.%d %s %s %s %s", 1+random.IntN(4), one("", "n1", "n2"),
				one("", "unready", "terminating", "gone", "published"), one("", "zone=z1", "zone=z2", "zone=z2,z1"), one("", "", "node=n1", "node=n2")))
		}
		records, port := read(slice("http", 8080, endpoints...)), Port{Name: "http", Protocol: sdk.TCP}
		chosen := Choose(records, port, sdk.IPv4, here)
		explained := Explain(records, port, sdk.IPv4, here)
		if len(explained) != chosen.Total {
			t.Fatalf("%q: %d explained of %d", endpoints, len(explained), chosen.Total)
		}
		for _, e := range explained {
			if (e.NotCluster == "") != contains(chosen.Cluster, e.Addr) || (e.NotLocal == "") != contains(chosen.Local, e.Addr) {
				t.Fatalf("%q: %+v does not agree with %+v", endpoints, e, chosen)
			}
		}
	}
}

// Misnamed names a port that no EndpointSlice has, and lists the ports that they have.
func TestMisnamed(t *testing.T) {
	const asks = `the Service asks for port "http" (tcp), and its EndpointSlices have only `
	web, portless := slice("web", 8080, "10.0.0.1 n1"), slice("", 0, "10.0.0.1 n1")
	portless.Ports = nil
	for what, tt := range map[string]struct {
		slices []*discoveryv1.EndpointSlice
		want   string
	}{
		"it has the port":         {[]*discoveryv1.EndpointSlice{web, slice("http", 8080, "10.0.0.1 n1")}, ""},
		"nothing runs":            {[]*discoveryv1.EndpointSlice{slice("web", 8080)}, ""},
		"another name":            {[]*discoveryv1.EndpointSlice{web, web, slice("db", 5432, "10.0.0.1 n1")}, asks + `"db" (tcp), "web" (tcp); look at the port's name and targetPort`},
		"a targetPort no pod has": {[]*discoveryv1.EndpointSlice{portless}, asks + "none; look at the port's name and targetPort"},
	} {
		if got := Misnamed(read(tt.slices...), Port{Name: "http", Protocol: sdk.TCP}, sdk.IPv4); got != tt.want {
			t.Errorf("%s: %q, want %q", what, got, tt.want)
		}
	}
}
