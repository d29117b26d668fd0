// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// Answer starts an endpoint on h that answers each line, or datagram, with one:
// its own address, and the client's as it sees it. On a connection it says that
// once unasked, so that a caller knows at once which endpoint it reached. A long datagram has as
// long an answer, with spaces at its end. It ends when it is closed.
func Answer(ctx context.Context, h *Host, protocol sdk.Protocol, at netip.AddrPort) (io.Closer, error) {
	switch protocol {
	case sdk.SCTP:
		return answerSCTP(h, at)
	case sdk.UDP:
		conn, err := h.ListenPacket(ctx, network(protocol, at.Addr()), at)
		if err != nil {
			return nil, fmt.Errorf("listen as endpoint %s: %w", at, err)
		}
		go answerPackets(conn, at) // ends when conn is closed
		return conn, nil
	}
	l, err := h.Listen(ctx, network(protocol, at.Addr()), at)
	if err != nil {
		return nil, fmt.Errorf("listen as endpoint %s: %w", at, err)
	}
	go answerStreams(l, at) // ends when l is closed
	return l, nil
}

func answerPackets(conn net.PacketConn, me netip.AddrPort) {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		answer := says(me, from.String())
		answer += strings.Repeat(" ", max(0, n-len(answer)))
		_, _ = conn.WriteTo([]byte(answer), from)
	}
}

func answerStreams(l net.Listener, me netip.AddrPort) {
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
				if _, err := io.WriteString(conn, says(me, conn.RemoteAddr().String())); err != nil {
					return
				}
			}
		}()
	}
}

// says returns what endpoint me tells a client.
func says(me netip.AddrPort, client string) string { return me.String() + " " + client + "\n" }

func parseLine(text string) (sdktest.Answer, error) {
	me, client, _ := strings.Cut(strings.TrimSpace(text), " ")
	a := sdktest.Answer{Verdict: sdk.Forward}
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
