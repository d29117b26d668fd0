// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

var description = sdk.Description{Name: "example", Version: "1.2.0", Features: sdk.Features}

// noted is a dataplane that serves no packet: it notes what it is to serve.
func noted() sdk.Dataplane {
	var mu sync.Mutex // of what follows
	var services map[sdk.Name]sdk.Service
	return sdk.WholeOf(description, sdk.Parts{
		Serve: func(_ context.Context, _ sdk.Setup, s sdk.State) error {
			mu.Lock()
			defer mu.Unlock()
			services = maps.Clone(s.Services)
			return nil
		},
		List: func(context.Context) (all []sdk.Served, err error) {
			mu.Lock()
			defer mu.Unlock()
			for name, svc := range services {
				for _, f := range svc.Frontends {
					served := sdk.Served{Name: name, Frontend: f}
					for _, endpoint := range svc.Endpoints(f.Policy) {
						served.Endpoints = append(served.Endpoints, endpoint.Addr)
					}
					all = append(all, served)
				}
			}
			return all, nil
		},
	})
}

// A plugin's main is one call.
func ExampleServe() {
	main := func() { wire.Serve(description, noted()) }
	_ = main
}

// Local has everything of a connection but the process: here a host begins a session, sends
// the whole state, and then an update that does not lead on from it.
func ExampleLocal() {
	ctx := context.Background()
	remote, err := wire.Local(ctx, description, noted())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer remote.Close()
	fmt.Println(remote.Hello().Name, remote.Hello().Version)

	if _, err := remote.Configure(ctx, sdk.Setup{}); err != nil {
		fmt.Println(err)
	}
	web := sdk.Service{
		Name:      sdk.Name{Namespace: "shop", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Addr: netip.MustParseAddrPort("172.30.0.1:80"), Policy: sdk.Cluster}},
		Cluster:   []sdk.Endpoint{{Addr: netip.MustParseAddrPort("10.180.0.1:8080")}},
	}
	result, err := remote.Sync(ctx, sdk.Update{To: 1, Full: true, Set: []sdk.Service{web}})
	fmt.Println("all of it:", len(result.Failed), "failed,", err)

	_, err = remote.Sync(ctx, sdk.Update{From: 7, To: 8, Delete: []sdk.Name{web.Name}})
	fmt.Println("after a gap, a full update is asked for:", errors.Is(err, sdk.ErrResync))

	err = remote.Inspect(ctx, func(s sdk.Served) error {
		fmt.Println("served:", s.Name, s.Frontend, s.Endpoints)
		return nil
	})
	if err == nil {
		err = remote.Shutdown(ctx)
	}
	fmt.Println(err)
	// Output:
	// example 1.2.0
	// all of it: 0 failed, <nil>
	// after a gap, a full update is asked for: true
	// served: shop/web/tcp4 cluster-ip 172.30.0.1:80 [10.180.0.1:8080]
	// <nil>
}

// What listens for itself is attached to by its address.
func ExampleAt() {
	target, err := wire.At("unix:///run/pointsman/ipvs/plugin.sock")
	fmt.Println(target, err)
	_, err = wire.At("/run/pointsman/ipvs/plugin.sock")
	fmt.Println(err)
	// Output:
	// unix:///run/pointsman/ipvs/plugin.sock <nil>
	// address "/run/pointsman/ipvs/plugin.sock": want unix:///absolute/path
}
