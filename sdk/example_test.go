// SPDX-License-Identifier: Apache-2.0

package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/sdk"
)

var (
	name = sdk.Name{Namespace: "ns1", Service: "web", Port: "http", Protocol: sdk.TCP, Family: sdk.IPv4}
	near = sdk.Endpoint{Addr: netip.MustParseAddrPort("10.180.0.1:8080"), OnNode: true}
	far  = sdk.Endpoint{Addr: netip.MustParseAddrPort("10.180.1.1:8080")}

	clusterIP = sdk.Frontend{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("172.30.0.41:80"), Policy: sdk.Cluster}
	nodePort  = sdk.Frontend{Kind: sdk.NodePort, Addr: netip.MustParseAddrPort("0.0.0.0:30080"), Policy: sdk.Local}

	web = sdk.Service{
		Name:      name,
		Frontends: []sdk.Frontend{clusterIP, nodePort},
		Cluster:   []sdk.Endpoint{near, far},
		Local:     []sdk.Endpoint{near},
	}
)

// A dataplane that only prints what it should serve. In a plugin, main passes it to
// wire.Serve, and the host makes the calls below.
func Example() {
	description := sdk.Description{Name: "printer", Version: "0.1.0", Features: sdk.Features}
	printer := sdk.Whole(description, func(_ context.Context, s sdk.State) error {
		fmt.Println(len(s.Services), "Services on", s.Node.Name)
		for _, svc := range s.Services {
			for _, f := range svc.Frontends {
				fmt.Println(" ", svc.Name, f, "to", svc.Endpoints(f.Policy))
			}
		}
		return nil
	})

	ctx := context.Background()
	if _, err := printer.Configure(ctx, sdk.Setup{}); err != nil {
		fmt.Println(err)
	}
	for _, u := range []sdk.Update{
		{To: 1, Full: true, Node: &sdk.Node{Name: "n1"}, Set: []sdk.Service{web}},
		{From: 1, To: 2, Delete: []sdk.Name{name}},
	} {
		if _, err := printer.Sync(ctx, u); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// 1 Services on n1
	//   ns1/web:http/tcp4 cluster-ip 172.30.0.41:80 to [10.180.0.1:8080 here 10.180.1.1:8080]
	//   ns1/web:http/tcp4 node-port *:30080 local to [10.180.0.1:8080 here]
	// 0 Services on n1
}

// A dataplane whose work is proportional to the change: a table in memory, which cannot
// serve a Service named "bad".
type table struct {
	state sdk.State
	rows  map[sdk.Name][]sdk.Endpoint
}

func (t *table) Sync(_ context.Context, u sdk.Update) (sdk.Result, error) {
	changes, err := t.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err // ErrResync: the host sends a Full
	}
	var result sdk.Result
	for _, c := range changes.Services {
		switch {
		case c.After == nil:
			delete(t.rows, c.Name)
		case c.Name.Service == "bad":
			result.Failed = append(result.Failed, sdk.Failure{Name: c.Name, Err: errors.New("it is bad")})
		default:
			t.rows[c.Name] = c.After.Cluster
		}
	}
	t.state.Confirm(result.Failed...)
	return result, nil
}

func ExampleState() {
	t := &table{rows: map[sdk.Name][]sdk.Endpoint{}}
	sync := func(u sdk.Update) {
		result, err := t.Sync(context.Background(), u)
		for _, f := range result.Failed {
			fmt.Printf("%s: %v; ", f.Name, f.Err)
		}
		fmt.Println("at", t.state.Revision(), t.rows, err)
	}

	bad := web
	bad.Name.Service = "bad"
	fewer := web
	fewer.Cluster = []sdk.Endpoint{near}

	sync(sdk.Update{From: 7, To: 8, Set: []sdk.Service{web}}) // not a Full, and there is no state to continue from
	sync(sdk.Update{To: 8, Full: true, Set: []sdk.Service{web, bad}})
	sync(sdk.Update{From: 8, To: 9, Set: []sdk.Service{fewer}})
	// Output:
	// at 0 map[] update leads from revision 7, the state is at 0: resync: a full update is needed
	// ns1/bad:http/tcp4: it is bad; at 8 map[ns1/web:http/tcp4:[10.180.0.1:8080 here 10.180.1.1:8080]] <nil>
	// at 9 map[ns1/web:http/tcp4:[10.180.0.1:8080 here]] <nil>
}

// Route returns where packets go. A relay only has to call it and choose an endpoint.
func ExampleService_Route() {
	node := sdk.Node{Pods: sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24")}}}
	callers := map[string]sdk.Caller{
		"a client": {Addr: netip.MustParseAddr("198.18.0.7"), From: sdk.Elsewhere},
		"a pod":    {Addr: netip.MustParseAddr("10.180.0.9"), From: sdk.OnPod},
		"the node": {Addr: netip.MustParseAddr("192.0.2.10"), From: sdk.OnNode},
	}
	for _, who := range slices.Sorted(maps.Keys(callers)) {
		r := web.Route(nodePort, callers[who], node)
		fmt.Printf("%s: %s to %v, masqueraded %t\n", who, r.Verdict, r.Endpoints, r.Masquerade)
	}
	// Output:
	// a client: forward to [10.180.0.1:8080 here], masqueraded false
	// a pod: forward to [10.180.0.1:8080 here 10.180.1.1:8080], masqueraded false
	// the node: forward to [10.180.0.1:8080 here 10.180.1.1:8080], masqueraded true
}
