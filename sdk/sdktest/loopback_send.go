// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
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
