// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"context"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/traffic"
)

// serve answers on one of the backends, until the test ends.
func (n *node) serve(addr netip.Addr) {
	n.Helper()
	at := netip.AddrPortFrom(addr, port)
	host, err := n.testbed.Host(addr)
	if err != nil {
		n.Fatal(err)
	}
	l, err := host.Listen(n.Context(), "tcp4", at)
	if err != nil {
		n.Fatal(err)
	}
	packets, err := host.ListenPacket(n.Context(), "udp4", at)
	if err != nil {
		n.Fatal(err)
	}
	names, err := netns.Answer(n.Context(), host, sdk.TCP, netip.AddrPortFrom(addr, namePort))
	if err != nil {
		n.Fatal(err)
	}
	context.AfterFunc(n.Context(), func() { _, _, _ = l.Close(), packets.Close(), names.Close() })
	go traffic.Echo(l)              // ends with the listener
	go traffic.EchoPackets(packets) // ends with the socket
}
