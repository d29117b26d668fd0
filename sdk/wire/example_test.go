// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

var description = sdk.Description{Name: "example", Version: "1.2.0", Features: sdk.Features}

// printer returns a dataplane that prints the Services.
func printer() sdk.Dataplane {
	return sdk.Whole(description, func(_ context.Context, s sdk.State) error {
		for name, svc := range s.Services {
			fmt.Println(name, svc.Frontends, svc.Cluster)
		}
		return nil
	})
}

// A plugin's main is one call.
func ExampleServe() {
	main := func() { wire.Serve(description, printer()) }
	_ = main
}

// Local connects to a dataplane in this process. The host begins a session, sends a full update, and then
// an update that does not follow it.
func ExampleLocal() {
	ctx := context.Background()
	remote, err := wire.Local(ctx, description, printer())
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
	fmt.Println("full update:", len(result.Failed), "failed,", err)

	_, err = remote.Sync(ctx, sdk.Update{From: 7, To: 8, Delete: []sdk.Name{web.Name}})
	fmt.Println("resync after a gap:", errors.Is(err, sdk.ErrResync))

	fmt.Println(remote.Shutdown(ctx))
	// Output:
	// example 1.2.0
	// shop/web/tcp4 [cluster-ip 172.30.0.1:80] [10.180.0.1:8080]
	// full update: 0 failed, <nil>
	// resync after a gap: true
	// <nil>
}

// At returns the target of a plugin that listens at an address.
func ExampleAt() {
	target, err := wire.At("unix:///run/pointsman/ipvs/plugin.sock")
	fmt.Println(target, err)
	_, err = wire.At("/run/pointsman/ipvs/plugin.sock")
	fmt.Println(err)
	// Output:
	// unix:///run/pointsman/ipvs/plugin.sock <nil>
	// address "/run/pointsman/ipvs/plugin.sock": want unix:///absolute/path
}
