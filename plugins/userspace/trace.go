// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/hooks"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A node that packets come through: hooks.Kernel.
type tracedNode interface {
	Ends(p sdk.Packet, mark uint32) ([]hooks.End, error)
	Own(netip.Addr) bool
	Takes(sdk.Protocol, netip.AddrPort) (bool, error)
}

// Trace says what a caller comes to that sends a packet now and waits for an answer: forward, it is an endpoint's;
// reject, the connection is refused or reset; drop, there is none. The packet is followed through everything that
// the kernel has. Where that ends at a socket of the relay, it is said what this does by its table, and what it sends to each
// endpoint is followed as a packet of the node. It runs beside other calls, and changes nothing that they
// see. A process that may not read the kernel's rules cannot trace, nor can one on another system than Linux.
func (p *plugin) Trace(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	return answered(p.traceNow(ctx, packet))
}

// answered is what is said where a packet could not be followed.
func answered(t sdk.Traced, err error) (sdk.Traced, error) {
	switch why := hooks.Unclear(err); {
	case why != "":
		return sdk.Traced{CannotTell: why}, nil
	case errors.Is(err, fs.ErrPermission):
		return sdk.Traced{}, fmt.Errorf("trace a packet: %w: this process may not read the kernel's rules: %w", wire.ErrUnsupported, err)
	case errors.Is(err, errors.ErrUnsupported):
		return sdk.Traced{}, fmt.Errorf("trace a packet: %w: of this system it is not known what a packet comes through: that is Linux alone", wire.ErrUnsupported)
	case err != nil:
		return sdk.Traced{}, fmt.Errorf("trace a packet: %w", err)
	}
	return t, nil
}

func (p *plugin) traceNow(ctx context.Context, packet sdk.Packet) (sdk.Traced, error) {
	k, err := hooks.Now(ctx, sdk.FamilyOf(packet.To.Addr()))
	if err != nil {
		return sdk.Traced{}, err
	}
	return p.traceOn(k, packet, func(look func()) error {
		return p.Beside(ctx, func() error { look(); return nil })
	})
}

// traceOn looks into the plugin's tables by beside.
func (p *plugin) traceOn(k tracedNode, packet sdk.Packet, beside func(look func()) error) (sdk.Traced, error) {
	direct := false
	if err := beside(func() { direct = p.way.backend == "" && p.way.families != nil }); err != nil {
		return sdk.Traced{}, err
	}
	if direct && k.Own(packet.From.Addr()) {
		packet.Origin, packet.In = sdk.OnNode, "" // only a process of the node can send from there
	}
	ends, err := k.Ends(packet, 0)
	if err != nil {
		return sdk.Traced{}, err
	}
	var ways []sdk.Way
	for _, e := range ends {
		var m meeting
		if e.Local {
			if err := beside(func() { m = p.meet(packet, e) }); err != nil {
				return sdk.Traced{}, err
			}
		}
		if !e.Local && e.Verdict == sdk.Forward && e.Chain != "" && isOurs(nat(e.Chain)) {
			e.Rules = append(slices.Clip(e.Rules), fmt.Sprintf("the relay is not reached: this node has not got the address %s", e.To.Addr()))
		}
		some, cannotTell, err := m.ways(k, packet, e)
		if err != nil || cannotTell != "" {
			return sdk.Traced{CannotTell: cannotTell}, err
		}
		ways = append(ways, some...)
	}
	return merged(ways), nil
}

// A meeting is what a packet meets that the kernel delivers to the node itself.
type meeting struct {
	ours   bool          // rules of this dataplane led it here, or a socket of it should stand here
	socket string        // of this process, where it arrived; empty: there is none
	target *relay.Target // that it is for
	seen   relay.Foreseen
	byAddr bool // the relay needs the caller's address
}

// meet looks into the relay's table. It is called while nothing else is at work.
func (p *plugin) meet(packet sdk.Packet, e hooks.End) (m meeting) {
	for _, f := range p.way.families {
		if f.Serves(sdk.FamilyOf(packet.To.Addr())) {
			m = f.meet(packet, e)
		}
	}
	m.ours = m.ours || e.Chain != "" && isOurs(nat(e.Chain))
	return m
}

// meet is by the place of a socket.
func (d *direct) meet(packet sdk.Packet, e hooks.End) meeting {
	at := place{packet.Protocol, e.To}
	socket := d.open[at]
	if socket == nil {
		_, claimed := d.table.owner(at)
		return meeting{ours: claimed}
	}
	m := meeting{ours: true, socket: at.String(), target: socket.Target()}
	return m.foreseen(d.relay, d.relay.Caller(packet.From.Addr(), ""), true)
}

// meet is by one of the ports that rules lead to: TCP's say where the caller is, and the relay learns from the
// kernel where it called; UDP has one for each frontend.
func (r *redirected) meet(packet sdk.Packet, e hooks.End) meeting {
	at := place{packet.Protocol, e.To}.String()
	if packet.Protocol == sdk.TCP {
		origin, is := r.portals.Door(r.family, e.To.Port())
		if !is {
			return meeting{}
		}
		m := meeting{ours: true, socket: at, target: r.portals.Target(packet.To)}
		return m.foreseen(r.relay, sdk.Caller{Addr: packet.From.Addr(), From: origin}, false)
	}
	for where, socket := range r.open {
		if where.protocol == packet.Protocol && socket.Port() == e.To.Port() && r.bound == e.To.Addr() {
			m := meeting{ours: true, socket: at, target: socket.Target()}
			return m.foreseen(r.relay, r.relay.Caller(packet.From.Addr(), e.In), true)
		}
	}
	return meeting{}
}

// foreseen adds what the relay does. Callers may be told apart by their address.
func (m meeting) foreseen(r *relay.Relay, from sdk.Caller, byAddr bool) meeting {
	if m.target == nil {
		return m
	}
	m.seen = r.Foresee(m.target, from)
	f := m.target.Frontend
	m.byAddr = m.target.Service.Value().Affinity > 0 || len(f.Sources) > 0 || byAddr && f.Policy == sdk.Local
	return m
}

// ways are those of the end of a packet, or why they cannot be told.
func (m meeting) ways(k tracedNode, packet sdk.Packet, e hooks.End) (_ []sdk.Way, cannotTell string, _ error) {
	at := place{packet.Protocol, e.To}.String()
	switch {
	case !m.ours:
		return []sdk.Way{e.Way}, "", nil
	case m.socket == "":
		return m.without(k, packet, e, at)
	case m.target == nil:
		return []sdk.Way{stopped(packet, e, "the relay, "+at+": it serves nothing at "+packet.To.String())}, "", nil
	case e.Masquerade && m.byAddr:
		return nil, "the relay, " + at + ": a rule gives the packet another source address, by which this Service chooses", nil
	case m.seen.Verdict != sdk.Forward:
		return []sdk.Way{stopped(packet, e, fmt.Sprintf("the relay, %s: %s lets this caller in to no endpoint", at, m.target.Service.Name()))}, "", nil
	case m.seen.Full:
		return []sdk.Way{stopped(packet, e, "the relay, "+at+": it has as many flows as it may")}, "", nil
	}
	o := outcome{service: m.target.Service.Name(), seen: m.seen, protocol: packet.Protocol}
	for _, ep := range m.seen.Endpoints {
		ends, err := k.Ends(sdk.Packet{Protocol: packet.Protocol, To: ep, Origin: sdk.OnNode}, m.seen.Mark)
		if why := hooks.Unclear(err); why != "" {
			return nil, fmt.Sprintf("from the relay to %s: %s", ep, why), nil
		}
		if err != nil {
			return nil, "", err
		}
		o.tries = append(o.tries, try{ep, ends})
	}
	return o.ways(e, at), "", nil
}

// without is where no socket of this process stands, though one should. The kernel refuses what no socket takes.
// Of a socket of another process it is not known what that does.
func (m meeting) without(k tracedNode, packet sdk.Packet, e hooks.End, at string) ([]sdk.Way, string, error) {
	takes, err := k.Takes(packet.Protocol, e.To)
	switch {
	case err != nil:
		return nil, "", err
	case takes:
		return nil, fmt.Sprintf("%s is a socket of another process, which alone knows its endpoints (ss -%slnp sport = :%d shows which)",
			at, packet.Protocol.String()[:1], e.To.Port()), nil
	}
	w := e.Way
	w.Verdict, w.Masquerade = sdk.Reject, false
	w.Rules = append(slices.Clip(w.Rules), "no socket is there for "+at)
	return []sdk.Way{w}, "", nil
}

// stopped is the way of what the relay gives to no endpoint: a connection is reset, a datagram lost.
func stopped(packet sdk.Packet, e hooks.End, why string) sdk.Way {
	w := e.Way
	w.Verdict, w.Masquerade = sdk.Reject, false
	if packet.Protocol == sdk.UDP {
		w.Verdict = sdk.Drop
	}
	w.Rules = append(slices.Clip(w.Rules), why)
	return w
}
