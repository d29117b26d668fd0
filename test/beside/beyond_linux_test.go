// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// noService is the name in questions about addresses and ports that are no frontend.
const noService = "no Service"

// callsBeyondServices returns calls and pings of addresses and ports that are no frontend: of pods, of the node, and
// unused ones. No proxy may affect them.
func callsBeyondServices(things []thing) []question {
	none := thing{service: &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: noService}}}
	var all []question
	call := func(way, network string, port uint16, addrs ...[2]netip.Addr) {
		for _, pair := range addrs {
			for family, a := range pair {
				for _, from := range callers {
					to := target{none, fmt.Sprint(network, "46"[family:family+1]), way, netip.AddrPortFrom(a, port), 1, 0}
					all = append(all, question{from: from, to: to})
				}
			}
		}
	}
	vips := [][2]netip.Addr{{netip.MustParseAddr("10.96.99.99"), netip.MustParseAddr("fd00:10:96::9999")}}
	if len(things) > 0 {
		spec := things[0].service.Spec
		if len(spec.ClusterIPs) == 2 {
			vips = append(vips, [2]netip.Addr{netip.MustParseAddr(spec.ClusterIPs[0]), netip.MustParseAddr(spec.ClusterIPs[1])})
		}
	}
	call("pod", "tcp", 8080, at("near0").addrs, at("far0").addrs)
	call("node", "tcp", 9090, at("node").addrs, at("other").addrs)
	call("closed", "tcp", 31999, at("node").addrs, secondAddrs)
	call("no-frontend", "tcp", 4444, vips...)
	call("no-frontend", "udp", 8080, vips...)
	call("ping", "icmp", 0, append(vips, at("node").addrs, secondAddrs, at("near1").addrs, at("far1").addrs)...)
	return all
}

// echoes numbers pings, so that each recognises its own answer.
var echoes atomic.Uint32

// ping sends one echo request, and returns what answered it, or the error.
func (w *world) ping(place string, from, to netip.Addr, wait time.Duration) string {
	network, request, reply, unreachable, refusal, header := "ip4:icmp", byte(8), byte(0), byte(3), byte(3), 20
	if to.Is6() {
		network, request, reply, unreachable, refusal, header = "ip6:ipv6-icmp", 128, 129, 1, 4, 40
	}
	id := uint16(echoes.Add(1))
	var conn net.PacketConn
	err := w.hosts[place].Do(func() (err error) {
		text := ""
		if from.IsValid() {
			text = from.String()
		}
		conn, err = net.ListenPacket(network, text)
		return err
	})
	if err != nil {
		return failed(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(wait)); err != nil {
		return err.Error()
	}
	if _, err := conn.WriteTo(echo(request, id), &net.IPAddr{IP: to.AsSlice()}); err != nil {
		return failed(err)
	}
	buf := make([]byte, 1500)
	for {
		n, by, err := conn.ReadFrom(buf)
		if err != nil {
			return failed(err)
		}
		switch message := buf[:n]; {
		case message[0] == reply && number(message[4:]) == id:
			return "an echo by " + placeOf(netip.MustParseAddr(by.String()))
		case message[0] == unreachable && n >= 8+header+8 && number(message[8+header+4:]) == id:
			if message[1] == refusal {
				return refused
			}
			return passed
		}
	}
}

func number(b []byte) uint16 { return binary.BigEndian.Uint16(b) }

// echo returns an ICMP message of 8 bytes with its checksum, which the kernel adds for IPv6.
func echo(kind byte, id uint16) []byte {
	m := []byte{kind, 0, 0, 0, byte(id >> 8), byte(id), 0, 1}
	sum := uint32(0)
	for i := 0; i < len(m); i += 2 {
		sum += uint32(number(m[i:]))
	}
	binary.BigEndian.PutUint16(m[2:], ^uint16(sum+sum>>16))
	return m
}
