// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"cmp"
	"errors"
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
}

// Trace says what becomes of a packet. Where none is named it comes in by eth0.
func (g Given) Trace(p sdk.Packet) (sdk.Traced, error) {
	r := ruleset{tool: iptables.Tool{Prefix: "iptables"}, tables: g.Tables, tracer: trace.New(g.Tables)}
	r.tracer.Sets = g.Sets
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
	packet := trace.Packet{Protocol: p.Protocol.String(), From: p.From, To: p.To, In: p.In, Local: g.Local}
	if p.Origin != sdk.OnNode && p.In == "" {
		packet.In = "eth0"
	}
	flows, err := k.trace(packet)
	var unclear *unknown
	if errors.As(err, &unclear) {
		return sdk.Traced{CannotTell: unclear.why}, nil
	}
	if err != nil {
		return sdk.Traced{}, err
	}
	return traced(flows), nil
}

func (g Given) kept(v *service, client netip.Addr) (netip.AddrPort, bool) {
	for _, line := range g.Connections {
		if at, is := template(line, v, client); is {
			return at, true
		}
	}
	return netip.AddrPort{}, false
}
