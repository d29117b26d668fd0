// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// An endpoint answers each line, or datagram, with one line: its own address and
// the client's as it sees it. Over TCP it says that once unasked, so that a
// caller knows at once which endpoint it reached.

// listen starts an endpoint. It ends when the listener is closed.
func listen(ctx context.Context, at socket) (net.Listener, error) {
	var l net.ListenConfig
	if at.protocol == sdk.UDP {
		conn, err := l.ListenPacket(ctx, at.network(), at.addr.String())
		if err != nil {
			return nil, fmt.Errorf("listen as endpoint %s: %w", at.addr, err)
		}
		go answerPackets(conn, at.addr) // ends when conn is closed
		return packetListener{conn}, nil
	}
	listener, err := l.Listen(ctx, at.network(), at.addr.String())
	if err != nil {
		return nil, fmt.Errorf("listen as endpoint %s: %w", at.addr, err)
	}
	go answerStreams(listener, at.addr) // ends when listener is closed
	return listener, nil
}

func answerPackets(conn net.PacketConn, me netip.AddrPort) {
	buf := make([]byte, 64)
	for {
		_, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		_, _ = conn.WriteTo([]byte(line1(me, from)), from)
	}
}

func answerStreams(l net.Listener, me netip.AddrPort) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() { // ends when either side closes, or a minute has passed
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			in := bufio.NewScanner(conn)
			for ok := true; ok; ok = in.Scan() {
				if _, err := conn.Write([]byte(line1(me, conn.RemoteAddr()))); err != nil {
					return
				}
			}
		}()
	}
}

// line1 returns what endpoint me says to a client.
func line1(me netip.AddrPort, client net.Addr) string {
	return me.String() + " " + client.String() + "\n"
}

func parseAnswer(text string) (Answer, error) {
	me, client, _ := strings.Cut(strings.TrimSpace(text), " ")
	a := Answer{Verdict: sdk.Forward}
	var err error
	if a.Endpoint, err = netip.ParseAddrPort(me); err != nil {
		return a, fmt.Errorf("answer %q is not an endpoint's", text)
	}
	seen, err := netip.ParseAddrPort(client)
	if err != nil {
		return a, fmt.Errorf("answer %q is not an endpoint's", text)
	}
	a.Client = seen.Addr().Unmap()
	return a, nil
}

// A packetListener closes as a listener does.
type packetListener struct{ net.PacketConn }

func (packetListener) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (p packetListener) Addr() net.Addr          { return p.LocalAddr() }
