// SPDX-License-Identifier: Apache-2.0

// Package echo has the endpoints of a testbed, and how they are asked. An endpoint answers
// each line, or datagram, with one line: its own address and the client's as it sees it. Over
// a connection it says that once unasked, so that a caller knows at once which endpoint it
// reached.
package echo

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Socket is where an endpoint answers.
type Socket struct {
	Protocol sdk.Protocol
	Addr     netip.AddrPort
}

// Sockets returns those of all endpoints of services, each once.
func Sockets(services []sdk.Service) map[Socket]bool {
	all := make(map[Socket]bool)
	for _, s := range services {
		for _, ep := range slices.Concat(s.Cluster, s.Local) {
			all[Socket{s.Name.Protocol, ep.Addr}] = true
		}
	}
	return all
}

// Network returns the socket's in the words of package net.
func (s Socket) Network() string {
	return sdk.Name{Protocol: s.Protocol, Family: sdk.FamilyOf(s.Addr.Addr())}.Network()
}

// Local returns an address that a caller of this network may call from.
func Local(network string, at netip.AddrPort) net.Addr {
	if strings.HasPrefix(network, "udp") {
		return net.UDPAddrFromAddrPort(at)
	}
	return net.TCPAddrFromAddrPort(at)
}

// AnswerPackets answers datagrams until conn is closed. A long datagram has as long an
// answer, with spaces at its end.
func AnswerPackets(conn net.PacketConn, me netip.AddrPort) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		answer := says(me, from)
		answer += strings.Repeat(" ", max(0, n-len(answer)))
		_, _ = conn.WriteTo([]byte(answer), from)
	}
}

// AnswerStreams answers connections until l is closed.
func AnswerStreams(l net.Listener, me netip.AddrPort) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { // ends when either side closes, or some minutes have passed
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
			in := bufio.NewScanner(conn)
			for ok := true; ok; ok = in.Scan() {
				if _, err := io.WriteString(conn, says(me, conn.RemoteAddr())); err != nil {
					return
				}
			}
		}()
	}
}

func says(me netip.AddrPort, client net.Addr) string {
	return me.String() + " " + client.String() + "\n"
}

// Parse reads what an endpoint says.
func Parse(text string) (endpoint netip.AddrPort, client netip.Addr, err error) {
	me, seen, _ := strings.Cut(strings.TrimSpace(text), " ")
	endpoint, err = netip.ParseAddrPort(me)
	from, fromErr := netip.ParseAddrPort(seen)
	if err != nil || fromErr != nil {
		return endpoint, client, fmt.Errorf("answer %q is not an endpoint's", text)
	}
	return endpoint, from.Addr().Unmap(), nil
}

// A Flow asks its endpoint a line at a time.
type Flow struct {
	net.Conn
	Wait    time.Duration // for an answer
	Silence time.Duration // for what the caller's own rules stopped: do they say more?
	Greeted bool          // the first answer comes unasked
}

// Ask returns the endpoint's answer, until ctx ends.
func (f *Flow) Ask(ctx context.Context) (string, error) {
	if err := f.SetDeadline(time.Now().Add(f.Wait)); err != nil {
		return "", fmt.Errorf("ask: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { f.Close() })
	defer stop()
	if !f.Greeted {
		_, err := f.Write([]byte("who\n"))
		if f.Silence > 0 && errors.Is(err, syscall.EPERM) {
			err = f.SetDeadline(time.Now().Add(f.Silence))
		}
		if err != nil {
			return "", err
		}
	}
	f.Greeted = false
	buf := make([]byte, 256)
	n, err := f.Read(buf)
	return string(buf[:n]), err
}
