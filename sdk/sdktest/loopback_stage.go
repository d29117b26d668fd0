// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// How long to wait for an answer: long where one must come, for a loaded machine
// is no failure, and short where none should.
const (
	timeout = 20 * time.Second
	silence = 400 * time.Millisecond
)

func (s *loopbackStage) Send(ctx context.Context, p Packet) (Answer, error) {
	flow, err := s.Dial(ctx, p)
	if err != nil {
		return verdictOf(err)
	}
	defer flow.Close()
	return flow.Ask(ctx)
}

func (s *loopbackStage) Dial(ctx context.Context, p Packet) (Flow, error) {
	wait := timeout
	if p.Want.Unserved || p.Want.Verdict == sdk.Drop {
		wait = silence
	}
	to := socket{p.Protocol, p.To}
	d := net.Dialer{Timeout: wait, LocalAddr: local(to, p.From.Addr)}
	conn, err := d.DialContext(ctx, to.network(), p.To.String())
	if err != nil {
		return nil, fmt.Errorf("dial %s from %s: %w", p.To, p.From.Addr, err)
	}
	return &loopbackFlow{conn: conn, wait: wait, asked: p.Protocol == sdk.TCP}, nil
}

func local(to socket, from netip.Addr) net.Addr {
	at := netip.AddrPortFrom(from, 0)
	if to.protocol == sdk.UDP {
		return net.UDPAddrFromAddrPort(at)
	}
	return net.TCPAddrFromAddrPort(at)
}

// A loopbackFlow asks its endpoint a line at a time.
type loopbackFlow struct {
	conn  net.Conn
	wait  time.Duration
	asked bool // the first answer comes unasked
}

func (f *loopbackFlow) Close() error { return f.conn.Close() }

func (f *loopbackFlow) Ask(ctx context.Context) (Answer, error) {
	if err := f.conn.SetDeadline(time.Now().Add(f.wait)); err != nil {
		return Answer{}, fmt.Errorf("ask: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { f.conn.Close() })
	defer stop()
	if !f.asked {
		if _, err := f.conn.Write([]byte("who\n")); err != nil {
			return verdictOf(err)
		}
	}
	f.asked = false
	buf := make([]byte, 256)
	n, err := f.conn.Read(buf)
	if err != nil {
		return verdictOf(err)
	}
	return parseAnswer(string(buf[:n]))
}

// verdictOf reads an error: silence is a drop, and being told anything else (a
// reset, an end, an ICMP message) is a rejection.
func verdictOf(err error) (Answer, error) {
	var timeout net.Error
	switch {
	case errors.As(err, &timeout) && timeout.Timeout():
		return Answer{Verdict: sdk.Drop}, nil
	case errors.Is(err, context.Canceled):
		return Answer{}, err
	case cannotSend(err):
		return Answer{}, err
	}
	return Answer{Verdict: sdk.Reject}, nil
}

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
