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

// A Testbed sends real packets. With it the conformance suite tests what a dataplane does
// instead of what it reports.
type Testbed interface {
	// Place maps a scenario to addresses that exist on this testbed. It leaves out packets that
	// cannot be expressed there, each with a reason.
	Place(Scenario) (placed Scenario, leftOut []string)

	// Open starts the endpoints of a placed scenario.
	Open(context.Context, sdk.Dataplane, Scenario) (Stage, error)
}

// A Stage is a testbed with running endpoints.
type Stage interface {
	// Send sends the first packet of a new connection and waits for the result. The wait is
	// shorter if the packet should be dropped.
	Send(context.Context, Packet) (Answer, error)

	// Dial opens a flow and keeps it open.
	Dial(context.Context, Packet) (Flow, error)

	Close() error
}

// A Flow is an open connection, or the datagrams of one socket.
type Flow interface {
	Ask(context.Context) (Answer, error) // returns which endpoint answers now
	Close() error
}

// An Answer is the result that a caller sees, with what the endpoint reports.
type Answer struct {
	Verdict  sdk.Verdict
	Endpoint netip.AddrPort // the endpoint that answered
	Client   netip.Addr     // the client address that the endpoint saw
}

func (a Answer) String() string {
	if a.Verdict != sdk.Forward {
		return a.Verdict.String()
	}
	return a.Endpoint.String() + " (saw " + a.Client.String() + ")"
}

// A Network provides the sockets of a testbed. OpenStage makes a Stage from it.
type Network interface {
	// Listen opens an endpoint's socket, on which Echo answers. It returns nil if this network
	// does not support the protocol.
	Listen(context.Context, sdk.Protocol, netip.AddrPort) (io.Closer, error)

	// Dial connects from the location of a packet's caller, until the context ends.
	Dial(context.Context, Packet) (net.Conn, error)

	// Verdict interprets the error of a connection or of a missing answer.
	Verdict(error, Packet) (Answer, error)
}

// Timeouts for an answer: long if an answer is expected, so that a loaded machine causes no
// failure, and short if none is.
const (
	patience = 20 * time.Second
	silence  = 400 * time.Millisecond
)

// OpenStage starts the endpoints of a placed scenario on a network.
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

// Echo is an endpoint with the address me. It answers each datagram, or each line of a
// connection, with one line: its own address and the client's address that it sees. It ends
// when the net.PacketConn or net.Listener is closed. On a connection it also sends this line
// once unasked, so that a caller knows at once which endpoint it reached. The answer to a long
// datagram is padded with spaces to the same length.
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

// A flow sends a line to its endpoint and waits for the answer.
type flow struct {
	network Network
	packet  Packet
	conn    net.Conn
	wait    time.Duration // timeout of an answer
	greeted bool          // the first answer is sent unasked
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
		if errors.Is(err, syscall.EPERM) { // the caller's own rules stopped it: look for a more precise error
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
	// Send returns the result of the first packet of a new flow.
	Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Answer

	// Forgets reports whether an established flow to an address loses its endpoint, so that its
	// next packet is handled like a first one.
	Forgets(to netip.AddrPort, protocol sdk.Protocol, endpoint netip.AddrPort) bool
}

// Said returns the testbed for a dataplane in memory, which receives no real packets: the
// testbed asks it. find returns the Sender for the dataplane under test.
func Said(find func(sdk.Dataplane) Sender) Testbed { return said{find: find} }

// said is both the testbed and, with a sender, its stage.
type said struct {
	find   func(sdk.Dataplane) Sender
	sender Sender
}

func (said) Place(s Scenario) (Scenario, []string) { return s, nil }

func (g said) Open(_ context.Context, dp sdk.Dataplane, _ Scenario) (Stage, error) {
	return said{sender: g.find(dp)}, nil
}

func (g said) Send(_ context.Context, p Packet) (Answer, error) {
	return g.sender.Send(p.From, p.To, p.Protocol), nil
}

func (g said) Dial(_ context.Context, p Packet) (Flow, error) {
	return &saidFlow{sender: g.sender, packet: p}, nil
}

func (said) Close() error { return nil }

// A saidFlow stays with its first endpoint until it is forgotten.
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
