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
	"slices"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// How long to wait for an answer: long where one must come, for a loaded machine
// is no failure, and short where none should.
const (
	timeout = 20 * time.Second
	silence = 300 * time.Millisecond
)

// A socket is where an endpoint answers.
type socket struct {
	protocol sdk.Protocol
	addr     netip.AddrPort
}

// sockets returns those of all endpoints of s, each once.
func sockets(s sdktest.Scenario) map[socket]bool {
	all := make(map[socket]bool)
	for _, svc := range s.Services {
		for _, ep := range slices.Concat(svc.Cluster, svc.Local) {
			all[socket{svc.Name.Protocol, ep.Addr}] = true
		}
	}
	return all
}

// network returns protocol in the words of package net.
func network(p sdk.Protocol, addr netip.Addr) string {
	return sdk.Name{Protocol: p, Family: sdk.FamilyOf(addr)}.Network()
}

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

// answer lets the endpoint at answer from h.
func (s *stage) answer(ctx context.Context, h *Host, at socket) error {
	end, err := Answer(ctx, h, at.protocol, at.addr)
	if err == nil {
		s.endpoints = append(s.endpoints, end)
	}
	return err
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
	conn, err := dial(dialing, h, p)
	if err != nil {
		leave()
		return nil, fmt.Errorf("dial %s from %s: %w", p.To, p.From.Addr, err)
	}
	return &flow{conn: conn, packet: p, wait: wait, leave: leave, greeted: p.Protocol != sdk.UDP}, nil
}

func dial(ctx context.Context, h *Host, p sdktest.Packet) (net.Conn, error) {
	if p.Protocol == sdk.SCTP {
		return dialSCTP(ctx, h, p.From.Addr, p.To)
	}
	return h.Dial(ctx, network(p.Protocol, p.To.Addr()), p.From.Addr, p.To)
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

// A flow asks its endpoint a line at a time.
type flow struct {
	conn    net.Conn
	packet  sdktest.Packet
	wait    time.Duration
	leave   func()
	greeted bool // the first answer comes unasked
}

func (f *flow) Close() error {
	defer f.leave()
	return f.conn.Close()
}

func (f *flow) Ask(ctx context.Context) (sdktest.Answer, error) {
	if err := f.conn.SetDeadline(time.Now().Add(f.wait)); err != nil {
		return sdktest.Answer{}, fmt.Errorf("ask: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { f.conn.Close() })
	defer stop()
	if !f.greeted {
		_, err := f.conn.Write([]byte("who\n"))
		if errors.Is(err, syscall.EPERM) { // the node's own rules stopped it: do they say more?
			err = f.conn.SetDeadline(time.Now().Add(silence))
		}
		if err != nil {
			return verdict(err, f.packet)
		}
	}
	f.greeted = false
	buf := make([]byte, 256)
	n, err := f.conn.Read(buf)
	if err != nil {
		return verdict(err, f.packet)
	}
	return parseLine(string(buf[:n]))
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
