// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/trace"
)

// A balancer is IPVS. It looks at packets in INPUT, behind filter, and in OUTPUT, behind nat. A packet
// that it sends to another machine begins anew in OUTPUT; what it sends to the node itself goes on.
type balancer struct {
	services
	unclear func() error                                      // why it cannot be told what it does
	kept    func(*service, netip.Addr) (netip.AddrPort, bool) // where a client is kept; it may not be known
	expires bool                                              // a client is not kept where weight is 0
	foreign func(Server) bool                                 // whether another program's; nil: not known
}

// stages are where it looks at packets: NF_IP_PRI_NAT_SRC - 1 and NF_IP_PRI_NAT_DST + 2.
func (b balancer) stages() []stage {
	if b.none() {
		return nil
	}
	return []stage{
		{table: "IPVS", at: nftnl.Input, priority: 99, balances: true},
		{table: "IPVS", at: nftnl.Output, priority: -98, balances: true},
	}
}

const ftp, ftpData, firstUnprivileged = 21, 20, 1024

// find is the virtual service that a packet comes to; nil: none.
func (b balancer) find(p trace.Packet) (*service, error) {
	to := p.Destination()
	exact := b.at[Server{Protocol: p.Protocol, At: to}]
	if p.Mark != 0 {
		its, sure := b.of(p.Mark, to.Addr())
		switch {
		case its == nil:
		case sure, exact != nil && len(exact.serving()) == 0:
			return its, nil
		default:
			return nil, unknownf("IPVS has a virtual service of mark %#x without destinations, and does not say of which IP family", p.Mark)
		}
	}
	if exact != nil {
		return exact, nil
	}
	every := b.at[Server{Protocol: p.Protocol, At: netip.AddrPortFrom(to.Addr(), 0)}]
	control := b.at[Server{Protocol: "tcp", At: netip.AddrPortFrom(to.Addr(), ftp)}]
	switch {
	case every != nil:
		return nil, unknownf("IPVS has a virtual service for every port: %s", every.Server)
	case control == nil || p.Protocol != "tcp" || to.Port() != ftpData && to.Port() < firstUnprivileged:
	case control.persistent:
		return nil, unknownf("IPVS has a virtual service for FTP, %s, which may take other ports too", control.Server)
	}
	return nil, nil
}

// serving are the destinations that get new connections.
func (v *service) serving() (all []destination) {
	for _, d := range v.dests {
		if d.weight > 0 {
			all = append(all, d)
		}
	}
	return all
}

// A choice is one that a virtual service may make. Without an address it refuses.
type choice struct {
	to    netip.AddrPort
	share float64
}

// choices are those of a virtual service for a client. Where a scheduler goes by the number of
// connections, or by a hash, any destination is possible.
func (b balancer) choices(v *service, p trace.Packet) []choice {
	if kept, is := b.keeps(v, p.From.Addr()); is {
		return []choice{{v.target(kept, p), 1}}
	}
	weights := v.serving()
	if len(weights) == 0 {
		return []choice{{share: 1}}
	}
	if slices.Contains(hashing, v.scheduler) {
		weights = v.dests
	}
	sum := 0.0
	for _, d := range weights {
		sum += v.share(d)
	}
	var all []choice
	for _, d := range weights {
		c := choice{share: v.share(d) / sum}
		if d.weight > 0 {
			c.to = v.target(d.at, p)
		}
		all = append(all, c)
	}
	return all
}

// hashing are the schedulers that may find a destination without weight, and then refuse. Whether one
// goes on to another, as flags of sh and mh say, is not seen here.
var hashing = []string{"sh", "dh", "mh"}

// share is how much of the connections a destination gets, by the scheduler's weights.
func (v *service) share(d destination) float64 {
	if v.scheduler == "rr" || v.scheduler == "dh" {
		return 1
	}
	return float64(max(d.weight, 1))
}

// target is the address and port that a packet for a destination gets. A client that is kept by a mark
// keeps the port that it called.
func (v *service) target(dest netip.AddrPort, p trace.Packet) netip.AddrPort {
	if dest.Port() == 0 || v.Mark != 0 && v.persistent {
		return netip.AddrPortFrom(dest.Addr(), p.Destination().Port())
	}
	return dest
}

// keeps is the destination that a client is kept at, if it is.
func (b balancer) keeps(v *service, client netip.Addr) (netip.AddrPort, bool) {
	if !v.persistent || !v.single || b.kept == nil {
		return netip.AddrPort{}, false
	}
	at, is := b.kept(v, client)
	for _, d := range v.dests {
		same := d.at == at || v.Mark != 0 && d.at.Addr() == at.Addr()
		if is && same && (d.weight > 0 || !b.expires) {
			return d.at, true
		}
	}
	return netip.AddrPort{}, false
}

// understood is why it cannot be told what a virtual service does.
func (b balancer) understood(v *service) error {
	odd := slices.ContainsFunc(v.dests, func(d destination) bool { return d.method != "Masq" })
	if v.odd || odd {
		return unknownf("IPVS: the virtual service %s sends otherwise than by translating each connection once", b.title(v))
	}
	if b.unclear == nil {
		return nil
	}
	return b.unclear()
}

func (b balancer) title(v *service) string {
	text := fmt.Sprintf("%s (%s)", v.Server, v.scheduler)
	if b.foreign != nil && b.foreign(v.Server) {
		text += " of another program"
	}
	return text
}

// balance is what IPVS makes of a flow.
func (k *kernel) balance(f flow) ([]flow, error) {
	v, err := k.ipvs.find(f.Packet)
	if err != nil || v == nil {
		return []flow{f}, err
	}
	if err := k.ipvs.understood(v); err != nil {
		return nil, err
	}
	title := "IPVS, virtual service " + k.ipvs.title(v)
	var all []flow
	for _, c := range k.ipvs.choices(v, f.Packet) {
		n := f
		n.share *= c.share
		n.balanced = true
		if !c.to.IsValid() {
			n.verdict = trace.Reject
			n.decided(title + ": no destination has weight")
		} else {
			n.Balanced = n.Balanced || !f.Translated.IsValid()
			n.Translated = c.to
			n.decided(fmt.Sprintf("%s: to %s", title, c.to))
			if err := k.conduct(&n); err != nil {
				return nil, err
			}
		}
		all = append(all, n)
	}
	return all, nil
}

// conduct asks for the route of what IPVS has translated, as IPVS does: by the destination alone.
func (k *kernel) conduct(f *flow) error {
	to := f.Translated.Addr()
	r, err := k.route(trace.Packet{Protocol: f.Protocol, To: f.Translated, Local: f.Local}, to)
	if err != nil {
		return err
	}
	switch {
	case r.verdict != trace.Accept:
		f.verdict = trace.Reject // IPVS answers that the host is unreachable
		f.decided(r.why)
	case r.local && to.IsLoopback() && f.In != "" && (to.Is4() || f.In != "lo"):
		f.verdict = trace.Drop
		f.decided("IPVS sends nothing to loopback that came in")
	case r.local && !f.local:
		return unknownf("IPVS sends what is for %s to the node itself, and its route leads to %s", f.To, f.Out)
	case r.local:
	case f.From.Addr().IsLoopback():
		f.verdict = trace.Drop
		f.decided("IPVS sends nothing from loopback to another machine")
	default:
		f.resent, f.local, f.Out = true, false, r.out
		return k.blind(r.out)
	}
	return nil
}

// resend takes what IPVS sends to other machines through OUTPUT. Its connection has its destination, so that
// nat is not asked there.
func (k *kernel) resend(flows []flow) (sent, others []flow, err error) {
	sent, others = split(flows, func(f flow) bool { return f.resent && f.accepted() })
	for i := range sent {
		f := &sent[i]
		f.resent, f.settled, f.In, f.before = false, true, "", f.Mark
	}
	if sent, err = k.through(sent, nftnl.Output); err != nil {
		return nil, nil, err
	}
	for _, f := range sent {
		if !f.accepted() || f.Mark == f.before {
			continue
		}
		r, err := k.route(trace.Packet{Protocol: f.Protocol, To: f.Translated, Local: f.Local, Mark: f.Mark}, f.Translated.Addr())
		if err != nil {
			return nil, nil, err
		}
		if r.local || r.out != f.Out {
			return nil, nil, unknownf("a rule of OUTPUT gives the mark %#x to what IPVS sends to %s, and by that another route is chosen", f.Mark, f.Translated)
		}
	}
	return sent, others, nil
}
