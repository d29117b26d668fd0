// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"cmp"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// A Given kernel is what a packet comes through, where it is not read from the kernel: a test's.
type Given struct {
	Tables      iptables.Tables                                        // of one IP family
	Sets        func(set, parts string, p trace.Packet) (uint32, bool) // as those of a trace.Tracer
	Servers     string                                                 // virtual services, as /proc/net/ip_vs prints them
	Connections []string                                               // of IPVS, lines of /proc/net/ip_vs_conn
	Foreign     func(Server) bool                                      // as for TraceWith
	Local       func(netip.Addr) bool                                  // the node's addresses; all others are behind eth1
	Marked      map[uint32]string                                      // but for packets of these marks, which leave elsewhere
	Socket      func(netip.AddrPort) bool                              // whether one of the node takes what is sent there
	Sends       netip.Addr                                             // by which the node sends
}

// Trace says what becomes of a packet. Where none is named it comes in by eth0.
func (g Given) Trace(p sdk.Packet) (sdk.Traced, error) {
	flows, err := g.follow(p, 0)
	if why := Unclear(err); why != "" {
		return sdk.Traced{CannotTell: why}, nil
	}
	if err != nil {
		return sdk.Traced{}, err
	}
	return traced(flows), nil
}

// Ends are those of a Kernel.
func (g Given) Ends(p sdk.Packet, mark uint32) ([]End, error) {
	flows, err := g.follow(p, mark)
	return endsOf(flows), err
}

// Own is that of a Kernel.
func (g Given) Own(addr netip.Addr) bool { return g.Local(addr) }

// Takes is that of a Kernel.
func (g Given) Takes(_ sdk.Protocol, at netip.AddrPort) (bool, error) { return g.Socket(at), nil }

func (g Given) follow(p sdk.Packet, mark uint32) ([]flow, error) {
	r := ruleset{tool: iptables.Tool{Prefix: "iptables"}, tables: g.Tables, tracer: trace.New(g.Tables)}
	r.tracer.Sets = g.Sets
	r.tracer.Socket = func(p trace.Packet, _ bool) (bool, error) { return g.Socket(p.To), nil }
	k := kernel{
		stages: r.stages(),
		blind:  func(string) error { return nil },
		route: func(p trace.Packet, to netip.Addr) (route, error) {
			if g.Local(to) {
				return route{local: true, out: "lo", verdict: trace.Accept}, nil
			}
			return route{out: cmp.Or(g.Marked[p.Mark], "eth1"), verdict: trace.Accept}, nil
		},
	}
	k.ipvs = balancer{services: virtualServices(g.Servers), kept: g.kept, expires: true, foreign: g.Foreign}
	k.stages = append(k.stages, k.ipvs.stages()...)
	k.sort()
	packet := trace.Packet{Protocol: p.Protocol.String(), From: p.From, To: p.To, In: p.In, Mark: mark, Local: g.Local}
	switch {
	case p.Origin != sdk.OnNode:
		packet.In = cmp.Or(p.In, "eth0")
	case !p.From.Addr().IsValid():
		packet.From = netip.AddrPortFrom(g.Sends, 0)
	}
	return k.trace(packet)
}

func (g Given) kept(v *service, client netip.Addr) (netip.AddrPort, bool) {
	for _, line := range g.Connections {
		if at, is := template(line, v, client); is {
			return at, true
		}
	}
	return netip.AddrPort{}, false
}
