// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
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
	go echoStreams(l)       // ends with the listener
	go echoPackets(packets) // ends with the socket
}

func echoStreams(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }() // ends with its caller
	}
}

func echoPackets(packets net.PacketConn) {
	said := make([]byte, 64)
	for {
		count, from, err := packets.ReadFrom(said)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = packets.WriteTo(said[:count], from)
		}
	}
}
