// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"net/netip"

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

// A Sender says itself what becomes of a packet; a Recorder does.
type Sender interface {
	// Send is the first packet of a new flow.
	Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) Answer

	// Forgets reports whether an established flow to an address is taken from the
	// endpoint that it found, so that its next packet is as a first one.
	Forgets(to netip.AddrPort, protocol sdk.Protocol, endpoint netip.AddrPort) bool
}

// Said returns the testbed for a dataplane in memory, which no packet can reach: it is
// asked instead. find leads from the dataplane under test to its Sender; nil: it
// is one itself.
func Said(find func(sdk.Dataplane) Sender) Testbed {
	if find == nil {
		find = func(dp sdk.Dataplane) Sender { s, _ := dp.(Sender); return s }
	}
	return said{find}
}

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
