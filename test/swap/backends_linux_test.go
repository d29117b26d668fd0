// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"io"
	"net"
	"net/netip"

	"github.com/pointsman/pointsman/test/traffic"
)

// serve answers TCP and UDP at a backend with what it receives, until the test ends.
func (n *node) serve(addr netip.Addr) {
	n.Helper()
	at := netip.AddrPortFrom(addr, port)
	n.echo(at)
	host, err := n.testbed.Host(addr)
	if err != nil {
		n.Fatal(err)
	}
	packets, err := host.ListenPacket(n.Context(), "udp4", at)
	if err != nil {
		n.Fatal(err)
	}
	context.AfterFunc(n.Context(), func() { _ = packets.Close() })
	go traffic.EchoPackets(packets) // ends with the socket
}

// echo answers TCP.
func (n *node) echo(at netip.AddrPort) {
	n.Helper()
	n.accept("tcp", at, func(conn net.Conn) {
		go func() { defer conn.Close(); _, _ = io.Copy(conn, conn) }() // ends with its caller
	})
}

// accept hands each connection to take, one after the other, until the test ends.
func (n *node) accept(network string, at netip.AddrPort, take func(net.Conn)) {
	n.Helper()
	host, err := n.testbed.Host(at.Addr())
	if err != nil {
		n.Fatal(err)
	}
	l, err := host.Listen(n.Context(), network, at)
	if err != nil {
		n.Fatal(err)
	}
	context.AfterFunc(n.Context(), func() { _ = l.Close() })
	go func() { // ends with the listener
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			take(conn)
		}
	}()
}
