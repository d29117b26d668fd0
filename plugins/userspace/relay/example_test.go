// SPDX-License-Identifier: Apache-2.0

package relay_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
)

// A Service with one endpoint is served at an address of this machine.
func Example() {
	endpoint, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer endpoint.Close()
	go func() { // ends with its one connection
		if conn, err := endpoint.Accept(); err == nil {
			fmt.Fprint(conn, "hello")
			conn.Close()
		}
	}()

	r := relay.New()
	defer r.Stop()
	socket, err := r.Listen(context.Background(), sdk.TCP, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer socket.Close()
	web := sdk.Service{
		Name:      sdk.Name{Namespace: "shop", Service: "web", Protocol: sdk.TCP, Family: sdk.IPv4},
		Frontends: []sdk.Frontend{{Kind: sdk.ClusterIP, Policy: sdk.Cluster, Addr: netip.MustParseAddrPort("127.0.0.1:0")}},
		Cluster:   []sdk.Endpoint{{Addr: endpoint.Addr().(*net.TCPAddr).AddrPort()}},
	}
	socket.Serve(&relay.Target{Service: relay.NewService(web), Frontend: web.Frontends[0]})

	client, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", socket.Port()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	said, _ := io.ReadAll(client)
	fmt.Printf("%s, after %d connection\n", said, r.Counters.Accepted.Load())
	// Output: hello, after 1 connection
}
