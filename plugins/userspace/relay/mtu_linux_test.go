// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"testing"

	"github.com/pointsman/pointsman/test/relaytest"
)

// If a router reports that datagrams to an endpoint are too long, the endpoint has not refused them. The client keeps its
// endpoint, and no datagram is lost.
func TestFlowOnNarrowPath(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it sends ICMP as a router does")
	}
	front, a, b := at(1, 5300), at(2, 5300), at(3, 5300)
	beyondRouter(t, a)
	beyondRouter(t, b)
	s := serve(t, udp(svc("dns", "cluster-ip "+front, a+" "+b)))
	c := relaytest.UDPClient(t, front)
	first := relaytest.AskUDP(t, c, "x")
	for range 20 {
		if name := relaytest.AskUDP(t, c, "x"); name != first {
			t.Fatalf("the endpoint was %s, and is %s", first, name)
		}
	}
	if n := s.Counters.FlowsBegun.Load(); n != 1 {
		t.Errorf("%d flows were begun", n)
	}
}

// beyondRouter starts an endpoint, and answers each of its datagrams with an ICMP error of a router, too.
func beyondRouter(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	router, err := net.ListenPacket("ip4:icmp", "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { router.Close() })
	me := netip.MustParseAddrPort(addr)
	go func() { // ends when conn is closed
		buf := make([]byte, 1<<16)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			caller := from.(*net.UDPAddr)
			_, _ = router.WriteTo(tooLong(caller.AddrPort(), me), &net.IPAddr{IP: caller.IP})
			_, _ = conn.WriteTo([]byte(addr+" "+string(buf[:n])), from)
		}
	}()
}

// tooLong returns the ICMP message "fragmentation needed" for a datagram.
func tooLong(from, to netip.AddrPort) []byte {
	const mtu, header, udp = 1280, 20, 17
	m := make([]byte, 8+header+8)
	m[0], m[1] = 3, 4
	binary.BigEndian.PutUint16(m[6:], mtu)
	ip := m[8:]
	ip[0], ip[8], ip[9] = 4<<4|header/4, 64, udp
	binary.BigEndian.PutUint16(ip[2:], mtu+1)
	copy(ip[12:], from.Addr().Unmap().AsSlice())
	copy(ip[16:], to.Addr().Unmap().AsSlice())
	binary.BigEndian.PutUint16(ip[header:], from.Port())
	binary.BigEndian.PutUint16(ip[header+2:], to.Port())
	binary.BigEndian.PutUint16(ip[header+4:], mtu+1-header)
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(m[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}
