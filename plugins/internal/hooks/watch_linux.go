// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/sdk"
)

// Watch implements sdk.Watcher in the calling thread's network namespace, by the packet traces of nf_tables. reasons maps
// chains of a table to the reasons for which they drop. The rules that start traces are in a table that the kernel removes
// when the socket that created it is closed. The kernel does not trace rules of legacy iptables.
func Watch(ctx context.Context, p sdk.Packet, table string, reasons map[string]string, tell func(sdk.WatchedPacket) error) error {
	tracer, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer tracer.Close()
	lister, err := nftnl.Dial()
	if err != nil {
		return err
	}
	defer lister.Close()
	own := "pointsman-watch-" + strings.ToLower(rand.Text()[:8])
	if err := tracer.Send(ctx, traces(p, own)); err != nil {
		return fmt.Errorf("begin to trace packets: %w; this needs nf_tables of Linux 5.12 or later", err)
	}
	seen := make(map[uint32]*sdk.WatchedPacket)
	err = tracer.Traces(ctx, func(t nftnl.Trace) error {
		passes := t.Table == own && strings.HasPrefix(t.Chain, passed)
		w, begun := seen[t.ID]
		if !begun || t.Table == own && !passes && t.Network != nil { // or the ID was that of another packet before
			if len(seen) >= mostTraced {
				clear(seen)
			}
			w = new(sdk.WatchedPacket)
			seen[t.ID] = w
		}
		protocol, from, to := headers(t.Network, t.Transport)
		if !w.To.IsValid() {
			w.Protocol, w.From, w.To = protocol, from, to
		}
		if reason := reasons[t.Chain]; reason != "" && t.Table == table {
			w.Reason = reason
		}
		switch {
		case !passes && !t.Drops || !w.To.IsValid():
			return nil
		case !passes:
			w.Verdict, w.At = decider(ctx, lister, t)
		case !begun || !to.IsValid() || w.Protocol == sdk.TCP && !opens(t.Transport):
			delete(seen, t.ID)
			return nil
		default:
			w.Verdict, w.At = sdk.Forward, to.String()
		}
		delete(seen, t.ID)
		return tell(*w)
	})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

const (
	mostTraced = 4096 // the maximum number of packets whose trace is not complete
	eachSecond = 200  // the maximum number of packets in a second for which a trace starts
)

// passed is the prefix of the names of chains that the kernel calls after all others.
const passed = "passed-"

// traces returns the rules that trace packets like p, from before all other chains until after them. If p is empty, they
// trace all packets that begin a connection or belong to none, from the point where conntrack knows that.
func traces(p sdk.Packet, table string) *nftnl.Batch {
	const invalid, begins, untracked = 1 << 0, 1 << 3, 1 << 6 // bits of the state
	b := nftnl.NewBatch(nftnl.Inet, table)
	b.NewTable(nftnl.Owner)
	for chain, at := range map[string]uint32{"in": nftnl.PreRouting, "out": nftnl.Output} {
		hook := &nftnl.Hook{Type: "filter", At: at, Priority: -199} // behind NF_IP_PRI_CONNTRACK
		states, none := binary.NativeEndian.AppendUint32(nil, invalid|begins|untracked), make([]byte, 4)
		rule := []nftnl.Expr{nftnl.CT(nftnl.CTState, 0), nftnl.Mask(0, string(states)), nftnl.Cmp(nftnl.NotEqual, 0, string(none))}
		if p.To.IsValid() {
			hook.Priority = -450 // before NF_IP_PRI_RAW_BEFORE_DEFRAG
			rule = like(p)
		}
		if p.Origin == sdk.OnNode && at != nftnl.Output {
			continue
		}
		b.NewChain(chain, hook)
		b.NewRule(chain, append(rule, nftnl.Limit(eachSecond), nftnl.Load(0, "\x01"), nftnl.SetMeta(nftnl.MetaTrace, 0))...)
	}
	if p.To.IsValid() {
		for chain, at := range map[string]uint32{"in": nftnl.Input, "out": nftnl.PostRouting} {
			b.NewChain(passed+chain, &nftnl.Hook{Type: "filter", At: at, Priority: math.MaxInt32})
		}
	}
	return b
}

// like returns expressions that match the protocol, the sender's address and the destination of p.
func like(p sdk.Packet) (rule []nftnl.Expr) {
	is := func(load nftnl.Expr, value []byte) {
		rule = append(rule, load, nftnl.Cmp(nftnl.Equal, 0, string(value)))
	}
	proto, saddr, daddr, size := byte(unix.NFPROTO_IPV4), uint32(12), uint32(16), uint32(4)
	if p.To.Addr().Is6() {
		proto, saddr, daddr, size = unix.NFPROTO_IPV6, 8, 24, 16
	}
	is(nftnl.Meta(nftnl.MetaNFProto, 0), []byte{proto})
	if p.Origin != sdk.OnNode { // packets of the node may have any of its addresses
		is(nftnl.Payload(nftnl.Network, saddr, size, 0), p.From.Addr().AsSlice())
	}
	is(nftnl.Payload(nftnl.Network, daddr, size, 0), p.To.Addr().AsSlice())
	is(nftnl.Meta(nftnl.MetaL4Proto, 0), []byte{numbers[p.Protocol]})
	is(nftnl.Payload(nftnl.Transport, 2, 2, 0), binary.BigEndian.AppendUint16(nil, p.To.Port()))
	return rule
}

// numbers are the IP protocol numbers.
var numbers = map[sdk.Protocol]byte{sdk.TCP: unix.IPPROTO_TCP, sdk.UDP: unix.IPPROTO_UDP, sdk.SCTP: unix.IPPROTO_SCTP}

// opens reports whether a TCP header begins a connection: it has SYN and not ACK.
func opens(transport []byte) bool { return len(transport) > 13 && transport[13]&0x12 == 0x02 }

// headers parses a packet's protocol, sender and destination. The ports are zero for protocols that Services do not have.
func headers(network, transport []byte) (protocol sdk.Protocol, from, to netip.AddrPort) {
	var src, dst netip.Addr
	var number byte
	switch {
	case len(network) >= 20 && network[0]>>4 == 4:
		number = network[9]
		src, dst = netip.AddrFrom4([4]byte(network[12:16])), netip.AddrFrom4([4]byte(network[16:20]))
	case len(network) >= 40 && network[0]>>4 == 6:
		number = network[6]
		src, dst = netip.AddrFrom16([16]byte(network[8:24])), netip.AddrFrom16([16]byte(network[24:40]))
	default:
		return 0, from, to
	}
	ports := [2]uint16{}
	for is, n := range numbers {
		if n == number && len(transport) >= 4 {
			protocol, ports = is, [2]uint16{binary.BigEndian.Uint16(transport), binary.BigEndian.Uint16(transport[2:])}
		}
	}
	return protocol, netip.AddrPortFrom(src, ports[0]), netip.AddrPortFrom(dst, ports[1])
}

// decider returns the verdict of the step that dropped or rejected a packet, and names the rule.
func decider(ctx context.Context, conn *nftnl.Conn, t nftnl.Trace) (sdk.Verdict, string) {
	at := fmt.Sprintf("nftables, table %s %s, chain %s, ", families[t.Family], t.Table, t.Chain)
	if t.Handle == 0 {
		return sdk.Drop, at + "policy drop"
	}
	rules, err := conn.List(t.Family, t.Table).Rules(ctx, t.Chain)
	i := slices.IndexFunc(rules[t.Chain], func(r nftnl.Observed) bool { return r.Handle == t.Handle })
	if err != nil || i < 0 { // the rule was removed since
		return sdk.Drop, at + fmt.Sprintf("handle %d", t.Handle)
	}
	verdict := sdk.Drop
	if slices.ContainsFunc(rules[t.Chain][i].Exprs(), nftnl.Expr.Rejects) {
		verdict = sdk.Reject
	}
	return verdict, at + fmt.Sprintf("rule %d (handle %d)", i+1, t.Handle)
}
