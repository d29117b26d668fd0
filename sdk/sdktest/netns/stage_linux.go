// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
	"github.com/pointsman/pointsman/sdk/sdktest/internal/echo"
)

// How long to wait for an answer: long where one must come, for a loaded machine
// is no failure, and short where none should.
const (
	timeout = 20 * time.Second
	silence = 300 * time.Millisecond
)

// A stage has the endpoints of one scenario.
type stage struct {
	testbed   *Testbed
	endpoints []io.Closer
}

func (s *stage) Close() error {
	var errs []error
	for _, ep := range s.endpoints {
		errs = append(errs, ep.Close())
	}
	return errors.Join(errs...)
}

// Send sends the first packet of a new connection.
func (s *stage) Send(ctx context.Context, p sdktest.Packet) (sdktest.Answer, error) {
	f, err := s.Dial(ctx, p)
	if err != nil {
		return verdict(err, p)
	}
	defer f.Close()
	return f.Ask(ctx)
}

// Dial opens a flow from where p's caller is.
func (s *stage) Dial(ctx context.Context, p sdktest.Packet) (sdktest.Flow, error) {
	h, leave, err := s.testbed.caller(p)
	if err != nil {
		return nil, err
	}
	wait := timeout
	if p.Want.Unserved || p.Want.Verdict == sdk.Drop {
		wait = silence
	}
	dialing, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	var conn net.Conn
	if p.Protocol == sdk.SCTP {
		conn, err = dialSCTP(dialing, h, p.From.Addr, p.To)
	} else {
		conn, err = h.Dial(dialing, echo.Socket{Protocol: p.Protocol, Addr: p.To}.Network(), p.From.Addr, p.To)
	}
	if err != nil {
		leave()
		return nil, fmt.Errorf("dial %s from %s: %w", p.To, p.From.Addr, err)
	}
	asked := echo.Flow{Conn: conn, Wait: wait, Silence: silence, Greeted: p.Protocol != sdk.UDP}
	return &flow{asked, p, leave}, nil
}

// caller returns the host that sends p. A node that calls by an address which it has
// not has it for as long as the flow lasts, as where a dataplane binds it.
func (g *Testbed) caller(p sdktest.Packet) (h *Host, leave func(), err error) {
	nothing := func() {}
	switch {
	case p.From.From == sdk.OnNode:
		h := g.Node()
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.addrs[p.From.Addr] || p.From.Addr.IsLoopback() {
			return h, nothing, nil
		}
		if err := addAddr(g.node, uplink, p.From.Addr); err != nil {
			return nil, nil, err
		}
		return h, func() { _ = g.strip(p.From.Addr) }, nil
	case p.Interface != "":
		h, err := g.Behind(p.Interface, p.From.Addr)
		return h, nothing, err
	}
	h, err = g.Host(p.From.Addr)
	return h, nothing, err
}

// A flow says what its endpoint's answers mean for the packet.
type flow struct {
	echo.Flow
	packet sdktest.Packet
	leave  func()
}

func (f *flow) Close() error {
	defer f.leave()
	return f.Flow.Close()
}

func (f *flow) Ask(ctx context.Context) (sdktest.Answer, error) {
	text, err := f.Flow.Ask(ctx)
	if err != nil {
		return verdict(err, f.packet)
	}
	a := sdktest.Answer{Verdict: sdk.Forward}
	a.Endpoint, a.Client, err = echo.Parse(text)
	return a, err
}

// verdict reads an error: silence is a drop, and a refusal a rejection. Any other
// says that nothing took the packet, which only one that is none of ours may hear.
func verdict(err error, p sdktest.Packet) (sdktest.Answer, error) {
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return sdktest.Answer{Verdict: sdk.Drop}, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ECONNRESET):
		return sdktest.Answer{Verdict: sdk.Reject}, nil
	case p.Want.Unserved && unreachable(err):
		return sdktest.Answer{Verdict: sdk.Reject}, nil
	}
	return sdktest.Answer{}, fmt.Errorf("nothing took the packet: %w", err)
}

// unreachable reports whether err is what outside says, or the node without a route.
func unreachable(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EACCES)
}

// Answer starts an endpoint on h that answers each line, or datagram, with one:
// its own address, and the client's as it sees it. On a connection it says that
// once unasked, so that a caller knows at once which endpoint it reached. A long datagram has as
// long an answer, with spaces at its end. It ends when it is closed.
func Answer(ctx context.Context, h *Host, protocol sdk.Protocol, at netip.AddrPort) (io.Closer, error) {
	on := echo.Socket{Protocol: protocol, Addr: at}
	switch protocol {
	case sdk.SCTP:
		return answerSCTP(h, at)
	case sdk.UDP:
		conn, err := h.ListenPacket(ctx, on.Network(), at)
		if err != nil {
			return nil, fmt.Errorf("listen as endpoint %s: %w", at, err)
		}
		go echo.AnswerPackets(conn, at) // ends when conn is closed
		return conn, nil
	}
	l, err := h.Listen(ctx, on.Network(), at)
	for end := time.Now().Add(former); errors.Is(err, syscall.EADDRINUSE) && time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(former / 100)
		l, err = h.Listen(ctx, on.Network(), at)
	}
	if err != nil {
		return nil, fmt.Errorf("listen as endpoint %s: %w", at, err)
	}
	go echo.AnswerStreams(l, at) // ends when l is closed
	return l, nil
}

// former is how long an endpoint that a check has begun, and that was cut off, may take to end.
const former = 2 * time.Second
