// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/internal/echo"
)

// How long to wait for an answer: long where one must come, for a loaded machine
// is no failure, and short where none should.
const (
	timeout = 20 * time.Second
	silence = 400 * time.Millisecond
)

func (loopback) Open(ctx context.Context, _ sdk.Dataplane, s Scenario) (Stage, error) {
	stage := &loopbackStage{}
	for at := range echo.Sockets(s.Services) {
		if at.Protocol == sdk.SCTP {
			continue
		}
		b, err := listen(ctx, at)
		if err != nil {
			stage.Close()
			return nil, err
		}
		stage.backends = append(stage.backends, b)
	}
	return stage, nil
}

// A loopbackStage holds the endpoints' sockets.
type loopbackStage struct{ backends []io.Closer }

func (s *loopbackStage) Close() error {
	for _, b := range s.backends {
		b.Close()
	}
	return nil
}

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
	network := echo.Socket{Protocol: p.Protocol, Addr: p.To}.Network()
	d := net.Dialer{Timeout: wait, LocalAddr: echo.Local(network, netip.AddrPortFrom(p.From.Addr, 0))}
	conn, err := d.DialContext(ctx, network, p.To.String())
	if err != nil {
		return nil, fmt.Errorf("dial %s from %s: %w", p.To, p.From.Addr, err)
	}
	return &loopbackFlow{echo.Flow{Conn: conn, Wait: wait, Greeted: p.Protocol == sdk.TCP}}, nil
}

// A loopbackFlow says what its endpoint's answers mean.
type loopbackFlow struct{ echo.Flow }

func (f *loopbackFlow) Ask(ctx context.Context) (Answer, error) {
	text, err := f.Flow.Ask(ctx)
	if err != nil {
		return verdictOf(err)
	}
	a := Answer{Verdict: sdk.Forward}
	a.Endpoint, a.Client, err = echo.Parse(text)
	return a, err
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
	}
	if slices.ContainsFunc(ownErrors, func(own error) bool { return errors.Is(err, own) }) {
		return Answer{}, err
	}
	return Answer{Verdict: sdk.Reject}, nil
}

// listen starts an endpoint. It ends when the listener is closed.
func listen(ctx context.Context, at echo.Socket) (io.Closer, error) {
	var l net.ListenConfig
	if at.Protocol == sdk.UDP {
		conn, err := l.ListenPacket(ctx, at.Network(), at.Addr.String())
		if err != nil {
			return nil, fmt.Errorf("listen as endpoint %s: %w", at.Addr, err)
		}
		go echo.AnswerPackets(conn, at.Addr) // ends when conn is closed
		return conn, nil
	}
	listener, err := l.Listen(ctx, at.Network(), at.Addr.String())
	if err != nil {
		return nil, fmt.Errorf("listen as endpoint %s: %w", at.Addr, err)
	}
	go echo.AnswerStreams(listener, at.Addr) // ends when listener is closed
	return listener, nil
}
