// SPDX-License-Identifier: Apache-2.0

package sdktest

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

// A Testbed is where packets are really sent. The conformance suite finds out
// from it what a dataplane does, rather than what it says.
type Testbed interface {
	// Place moves a scenario to addresses that exist on this testbed. Packets that
	// cannot be expressed there are left out, each with a reason.
	Place(Scenario) (placed Scenario, leftOut []string)

	// Open makes the endpoints of a placed scenario answer.
	Open(context.Context, sdk.Dataplane, Scenario) (Stage, error)
}

// A Stage is a testbed with endpoints that answer.
type Stage interface {
	// Send sends the first packet of a new connection and waits for what comes.
	// A packet that is expected to be dropped is not waited for as long.
	Send(context.Context, Packet) (Answer, error)

	// Dial opens a flow, and keeps it.
	Dial(context.Context, Packet) (Flow, error)

	Close() error
}

// A Flow is one connection, or one socket's datagrams, that goes on.
type Flow interface {
	Ask(context.Context) (Answer, error) // which endpoint answers now
	Close() error
}

// An Answer is what a caller finds out, and what the endpoint tells it.
type Answer struct {
	Verdict  sdk.Verdict
	Endpoint netip.AddrPort // that answered
	Client   netip.Addr     // that the endpoint saw
}

func (a Answer) String() string {
	if a.Verdict != sdk.Forward {
		return a.Verdict.String()
	}
	return a.Endpoint.String() + " (saw " + a.Client.String() + ")"
}

// A Network is what a testbed of sockets differs in from others. OpenStage makes a Stage of it.
type Network interface {
	// Listen opens an endpoint's socket, which Echo answers on. Nil: this network has none of that protocol.
	Listen(context.Context, sdk.Protocol, netip.AddrPort) (io.Closer, error)

	// Dial connects from where a packet's caller is, as long as the context allows.
	Dial(context.Context, Packet) (net.Conn, error)

	// Verdict says what the error of a connection or of its absent answer means.
	Verdict(error, Packet) (Answer, error)
}

// How long to wait for an answer: long where one must come, for a loaded machine
// is no failure, and short where none should.
const (
	patience = 20 * time.Second
	silence  = 400 * time.Millisecond
)

// OpenStage makes the endpoints of a placed scenario answer on a network.
func OpenStage(ctx context.Context, n Network, s Scenario) (Stage, error) {
	type socket struct {
		protocol sdk.Protocol
		addr     netip.AddrPort
	}
	stage, open := &stage{network: n}, make(map[socket]bool)
	for _, svc := range s.Services {
		for _, ep := range slices.Concat(svc.Cluster, svc.Local) {
			at := socket{svc.Name.Protocol, ep.Addr}
			if open[at] {
				continue
			}
			open[at] = true
			end, err := n.Listen(ctx, at.protocol, at.addr)
			if err != nil {
				return nil, errors.Join(fmt.Errorf("listen as endpoint %s: %w", at.addr, err), stage.Close())
			}
			if end != nil {
				stage.endpoints = append(stage.endpoints, end)
				go Echo(end, at.addr) // ends with the stage
			}
		}
	}
	return stage, nil
}

// Echo is an endpoint at the address me: it answers each datagram, or line of a connection, with one line, its
// own address and the client's as it sees it, until the net.PacketConn or net.Listener is closed. Over a
// connection it says that once unasked, so that a caller knows at once which endpoint it reached. A long
// datagram has as long an answer, with spaces at its end.
func Echo(socket io.Closer, me netip.AddrPort) {
	says := func(client net.Addr) string { return me.String() + " " + client.String() + "\n" }
	switch socket := socket.(type) {
	case net.PacketConn:
		buf := make([]byte, 64<<10)
		for {
			n, from, err := socket.ReadFrom(buf)
			if err != nil {
				return
			}
			answer := says(from)
			_, _ = socket.WriteTo([]byte(answer+strings.Repeat(" ", max(0, n-len(answer)))), from)
		}
	case net.Listener:
		for {
			conn, err := socket.Accept()
			if err != nil {
				return
			}
			go func() { // ends when either side closes, or some minutes have passed
				defer conn.Close()
				_ = conn.SetDeadline(time.Now().Add(5 * time.Minute))
				in := bufio.NewScanner(conn)
				for ok := true; ok; ok = in.Scan() {
					if _, err := io.WriteString(conn, says(conn.RemoteAddr())); err != nil {
						return
					}
				}
			}()
		}
	}
}

type stage struct {
	network   Network
	endpoints []io.Closer
}

func (s *stage) Close() error {
	var errs []error
	for _, ep := range s.endpoints {
		errs = append(errs, ep.Close())
	}
	return errors.Join(errs...)
}

func (s *stage) Send(ctx context.Context, p Packet) (Answer, error) {
	f, err := s.Dial(ctx, p)
	if err != nil {
		return s.network.Verdict(err, p)
	}
	defer f.Close()
	return f.Ask(ctx)
}

func (s *stage) Dial(ctx context.Context, p Packet) (Flow, error) {
	f := &flow{network: s.network, packet: p, wait: patience, greeted: p.Protocol != sdk.UDP}
	if p.Want.Unserved || p.Want.Verdict == sdk.Drop {
		f.wait = silence
	}
	dialing, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	var err error
	if f.conn, err = s.network.Dial(dialing, p); err != nil {
		return nil, fmt.Errorf("dial %s from %s: %w", p.To, p.From.Addr, err)
	}
	return f, nil
}

// A flow asks its endpoint a line at a time.
type flow struct {
	network Network
	packet  Packet
	conn    net.Conn
	wait    time.Duration // for an answer
	greeted bool          // the first answer comes unasked
}

func (f *flow) Close() error { return f.conn.Close() }

func (f *flow) Ask(ctx context.Context) (Answer, error) {
	text, err := f.ask(ctx)
	if err != nil {
		return f.network.Verdict(err, f.packet)
	}
	me, seen, _ := strings.Cut(strings.TrimSpace(text), " ")
	endpoint, err := netip.ParseAddrPort(me)
	client, err2 := netip.ParseAddrPort(seen)
	if err = errors.Join(err, err2); err != nil {
		return Answer{}, fmt.Errorf("answer %q is not an endpoint's: %w", text, err)
	}
	return Answer{Verdict: sdk.Forward, Endpoint: endpoint, Client: client.Addr().Unmap()}, nil
}

func (f *flow) ask(ctx context.Context) (string, error) {
	if err := f.conn.SetDeadline(time.Now().Add(f.wait)); err != nil {
		return "", err
	}
	stop := context.AfterFunc(ctx, func() { f.conn.Close() })
	defer stop()
	if !f.greeted {
		_, err := f.conn.Write([]byte("who\n"))
		if errors.Is(err, syscall.EPERM) { // the caller's own rules stopped it: do they say more?
			err = f.conn.SetDeadline(time.Now().Add(silence))
		}
		if err != nil {
			return "", err
		}
	}
	f.greeted = false
	buf := make([]byte, 256)
	n, err := f.conn.Read(buf)
	return string(buf[:n]), err
}

// A Sender says itself what becomes of a packet; a Recorder does.
type Sender interface {
	// Send is the first packet of a new flow.
	Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Answer

	// Forgets reports whether an established flow to an address is taken from the
	// endpoint that it found, so that its next packet is as a first one.
	Forgets(to netip.AddrPort, protocol sdk.Protocol, endpoint netip.AddrPort) bool
}

// Said returns the testbed for a dataplane in memory, which no packet can reach: it is
// asked instead. find leads from the dataplane under test to its Sender.
func Said(find func(sdk.Dataplane) Sender) Testbed { return said{find} }

type said struct{ find func(sdk.Dataplane) Sender }

func (said) Place(s Scenario) (Scenario, []string) { return s, nil }

func (g said) Open(_ context.Context, dp sdk.Dataplane, _ Scenario) (Stage, error) {
	s := g.find(dp)
	if s == nil {
		return nil, errors.New("the dataplane cannot say where a packet goes")
	}
	return saidStage{s}, nil
}

type saidStage struct{ sender Sender }

func (s saidStage) Send(_ context.Context, p Packet) (Answer, error) {
	return s.sender.Send(p.From, p.To, p.Protocol), nil
}

func (s saidStage) Dial(_ context.Context, p Packet) (Flow, error) {
	return &saidFlow{sender: s.sender, packet: p}, nil
}

func (saidStage) Close() error { return nil }

// A saidFlow stays with the endpoint that it found first, until it is forgotten.
type saidFlow struct {
	sender Sender
	packet Packet
	found  Answer
}

func (f *saidFlow) Ask(context.Context) (Answer, error) {
	p := f.packet
	if f.found.Verdict != sdk.Forward || f.sender.Forgets(p.To, p.Protocol, f.found.Endpoint) {
		f.found = f.sender.Send(p.From, p.To, p.Protocol)
	}
	return f.found, nil
}

func (*saidFlow) Close() error { return nil }
