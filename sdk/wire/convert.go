// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Each pair of functions encodes and decodes one kind of value. Errors are detected while
// decoding: an invalid address is encoded as no bytes, and values that this version does not
// know are preserved in both directions, so that Service.Check can refuse them by name.

// A decoder keeps the first error of the fields that it decodes.
type decoder struct{ err error }

// failed returns that error. It is a method, so that within an expression it is evaluated after
// the decoding calls before it.
func (d *decoder) failed() error { return d.err }

func (d *decoder) fail(field, format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(field+": "+format, args...)
	}
}

// encodeAddr returns 4 or 16 bytes, or none for an invalid address, which decoders reject.
func encodeAddr(addr netip.Addr) []byte {
	b, _ := addr.MarshalBinary() // never fails
	return b
}

func (d *decoder) addr(field string, b []byte) netip.Addr {
	addr, ok := netip.AddrFromSlice(b)
	if !ok {
		d.fail(field, "an address of %d bytes", len(b))
	}
	return addr
}

func (d *decoder) port(field string, p uint32) uint16 {
	if p > 0xffff {
		d.fail(field, "a port of %d", p)
	}
	return uint16(p)
}

func (d *decoder) addrPort(field string, addr []byte, port uint32) netip.AddrPort {
	return netip.AddrPortFrom(d.addr(field, addr), d.port(field, port))
}

// prefix decodes the bytes of an address and a prefix length.
func (d *decoder) prefix(field string, b []byte) netip.Prefix {
	addr, ok := netip.AddrFromSlice(b[:max(len(b)-1, 0)])
	if !ok || int(b[len(b)-1]) > addr.BitLen() {
		d.fail(field, "% x is no range of addresses", b)
		return netip.Prefix{}
	}
	return netip.PrefixFrom(addr, int(b[len(b)-1]))
}

func encodePrefix(p netip.Prefix) []byte { return append(encodeAddr(p.Addr()), byte(p.Bits())) }

// each converts the values of a list, and returns nil for an empty one.
func each[V, W any](values []V, f func(V) W) []W {
	if len(values) == 0 {
		return nil
	}
	out := make([]W, len(values))
	for i, v := range values {
		out[i] = f(v)
	}
	return out
}

// named is like each, for a decoder's method that also takes the name of the field.
func named[V, W any](field string, values []V, f func(string, V) W) []W {
	return each(values, func(v V) W { return f(field, v) })
}

// enum converts a number from the wire. A number out of range becomes the largest value, which
// is unknown.
func enum[E ~int32](v E) uint8 {
	if v < 0 || v > 0xff {
		return 0xff
	}
	return uint8(v)
}

// utf8All reports whether all values are valid UTF-8, as protobuf strings must be.
func utf8All(values ...string) bool {
	return !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
}

func encodeName(n sdk.Name) *pb.Name {
	return &pb.Name{Namespace: n.Namespace, Service: n.Service, Port: n.Port, Protocol: pb.Protocol(n.Protocol), Family: pb.Family(n.Family)}
}

func decodeName(n *pb.Name) sdk.Name {
	return sdk.Name{
		Namespace: n.GetNamespace(), Service: n.GetService(), Port: n.GetPort(),
		Protocol: sdk.Protocol(enum(n.GetProtocol())), Family: sdk.Family(enum(n.GetFamily())),
	}
}

func encodeService(s *sdk.Service) *pb.Service {
	return &pb.Service{
		Name:          encodeName(s.Name),
		Frontends:     each(s.Frontends, encodeFrontend),
		Cluster:       packEndpoints(s.Cluster),
		Local:         packEndpoints(s.Local),
		Serving:       packAddrs(s.Serving),
		AffinityNanos: int64(s.Affinity),
		HealthPort:    uint32(s.HealthPort),
	}
}

// decodeService returns the name even with an error, so that the Failure can name the Service.
func decodeService(s *pb.Service) (sdk.Service, error) {
	var d decoder
	return sdk.Service{
		Name:       decodeName(s.GetName()),
		Frontends:  each(s.GetFrontends(), d.frontend),
		Cluster:    d.endpoints("cluster", s.GetCluster()),
		Local:      d.endpoints("local", s.GetLocal()),
		Serving:    d.addrs("serving", s.GetServing().GetCount(), s.GetServing().GetAddrs()),
		Affinity:   time.Duration(s.GetAffinityNanos()),
		HealthPort: d.port("health port", s.GetHealthPort()),
	}, d.failed()
}

func encodeFrontend(f sdk.Frontend) *pb.Frontend {
	return &pb.Frontend{
		Kind: pb.Kind(f.Kind), Addr: encodeAddr(f.Addr.Addr()), Port: uint32(f.Addr.Port()), Policy: pb.Policy(f.Policy),
		Sources: each(f.Sources, encodePrefix),
	}
}

func (d *decoder) frontend(f *pb.Frontend) sdk.Frontend {
	return sdk.Frontend{
		Kind: sdk.Kind(enum(f.GetKind())), Addr: d.addrPort("frontend", f.GetAddr(), f.GetPort()), Policy: sdk.Policy(enum(f.GetPolicy())),
		Sources: named("sources", f.GetSources(), d.prefix),
	}
}

// packEndpoints encodes a list in columns.
func packEndpoints(endpoints []sdk.Endpoint) *pb.Endpoints {
	if len(endpoints) == 0 {
		return nil
	}
	p := &pb.Endpoints{Count: uint32(len(endpoints)), Addrs: make([]byte, 0, len(endpoints)*endpoints[0].Addr.Addr().BitLen()/8)}
	one := true // all endpoints have the same port
	for i, ep := range endpoints {
		p.Addrs, _ = ep.Addr.Addr().AppendBinary(p.Addrs)
		one = one && ep.Addr.Port() == endpoints[0].Addr.Port()
		for ep.OnNode && len(p.OnNode) <= i/8 {
			p.OnNode = append(p.OnNode, 0)
		}
		if ep.OnNode {
			p.OnNode[i/8] |= 1 << (i % 8)
		}
	}
	if one {
		endpoints = endpoints[:1]
	}
	p.Ports = each(endpoints, func(ep sdk.Endpoint) uint32 { return uint32(ep.Addr.Port()) })
	return p
}

func (d *decoder) endpoints(field string, p *pb.Endpoints) []sdk.Endpoint {
	addrs := d.addrs(field, p.GetCount(), p.GetAddrs())
	if n := len(p.GetPorts()); n != 1 && n != len(addrs) {
		d.fail(field, "%d ports for %d endpoints", n, len(addrs))
		return nil
	}
	endpoints := make([]sdk.Endpoint, len(addrs))
	for i, addr := range addrs {
		endpoints[i].Addr = netip.AddrPortFrom(addr, d.port(field, p.Ports[min(i, len(p.Ports)-1)]))
		endpoints[i].OnNode = i/8 < len(p.OnNode) && p.OnNode[i/8]&(1<<(i%8)) != 0
	}
	return endpoints
}

func packAddrs(addrs []netip.Addr) *pb.Addresses {
	if len(addrs) == 0 {
		return nil
	}
	return &pb.Addresses{Count: uint32(len(addrs)), Addrs: slices.Concat(each(addrs, encodeAddr)...)}
}

// addrs decodes concatenated addresses of one family.
func (d *decoder) addrs(field string, count uint32, packed []byte) []netip.Addr {
	size := 4
	if uint64(len(packed)) == 16*uint64(count) {
		size = 16
	}
	if uint64(len(packed)) != uint64(size)*uint64(count) {
		d.fail(field, "%d addresses in %d bytes", count, len(packed))
		return nil
	}
	addrs := make([]netip.Addr, count)
	for i := range addrs {
		addrs[i], _ = netip.AddrFromSlice(packed[size*i : size*(i+1)])
	}
	return addrs
}

func encodeNode(n *sdk.Node) *pb.Node {
	if n == nil {
		return nil
	}
	return &pb.Node{
		Name:          n.Name,
		Addrs:         each(n.Addrs, encodeAddr),
		NodePorts:     each(n.NodePorts, encodePrefix),
		Pods:          &pb.Pods{Cidrs: each(n.Pods.CIDRs, encodePrefix), Bridge: n.Pods.Bridge, InterfacePrefix: n.Pods.InterfacePrefix},
		MasqueradeAll: n.MasqueradeAll,
		MasqueradeBit: uint32(n.MasqueradeBit),
		ServiceCidrs:  each(n.ServiceCIDRs, encodePrefix),
		PodCidrs:      each(n.PodCIDRs, encodePrefix),
		Conntrack: &pb.ConntrackLimits{
			Max:                        n.Conntrack.Max,
			TcpEstablishedTimeoutNanos: int64(n.Conntrack.TCPEstablishedTimeout),
			TcpCloseWaitTimeoutNanos:   int64(n.Conntrack.TCPCloseWaitTimeout),
			TcpBeLiberal:               n.Conntrack.TCPBeLiberal,
			UdpTimeoutNanos:            int64(n.Conntrack.UDPTimeout),
			UdpStreamTimeoutNanos:      int64(n.Conntrack.UDPStreamTimeout),
		},
	}
}

func decodeNode(n *pb.Node) (*sdk.Node, error) {
	if n == nil {
		return nil, nil
	}
	var d decoder
	c := n.GetConntrack()
	out := &sdk.Node{
		Name:          n.GetName(),
		Addrs:         named("addresses", n.GetAddrs(), d.addr),
		NodePorts:     named("node ports", n.GetNodePorts(), d.prefix),
		Pods:          sdk.Pods{CIDRs: named("pods", n.GetPods().GetCidrs(), d.prefix), Bridge: n.GetPods().GetBridge(), InterfacePrefix: n.GetPods().GetInterfacePrefix()},
		MasqueradeAll: n.GetMasqueradeAll(),
		MasqueradeBit: uint8(n.GetMasqueradeBit()),
		ServiceCIDRs:  named("service ranges", n.GetServiceCidrs(), d.prefix),
		PodCIDRs:      named("ranges of pods", n.GetPodCidrs(), d.prefix),
		Conntrack: sdk.ConntrackLimits{
			Max:                   c.GetMax(),
			TCPEstablishedTimeout: time.Duration(c.GetTcpEstablishedTimeoutNanos()),
			TCPCloseWaitTimeout:   time.Duration(c.GetTcpCloseWaitTimeoutNanos()),
			TCPBeLiberal:          c.GetTcpBeLiberal(),
			UDPTimeout:            time.Duration(c.GetUdpTimeoutNanos()),
			UDPStreamTimeout:      time.Duration(c.GetUdpStreamTimeoutNanos()),
		},
	}
	if n.GetMasqueradeBit() > 31 {
		d.fail("masquerade bit", "%d is none of 32", n.GetMasqueradeBit())
	}
	return out, d.failed()
}

func encodeServed(s sdk.Served) *pb.Served {
	endpoints := each(s.Endpoints, func(addr netip.AddrPort) sdk.Endpoint { return sdk.Endpoint{Addr: addr} })
	return &pb.Served{Name: encodeName(s.Name), Frontend: encodeFrontend(s.Frontend), Endpoints: packEndpoints(endpoints)}
}

func decodeServed(s *pb.Served) (sdk.Served, error) {
	var d decoder
	endpoints := d.endpoints("endpoints", s.GetEndpoints())
	return sdk.Served{
		Name: decodeName(s.GetName()), Frontend: d.frontend(s.GetFrontend()),
		Endpoints: each(endpoints, func(ep sdk.Endpoint) netip.AddrPort { return ep.Addr }),
	}, d.failed()
}

func encodeAffinityEntry(s sdk.AffinityEntry) *pb.AffinityEntry {
	return &pb.AffinityEntry{
		Name: encodeName(s.Name), Client: encodeAddr(s.Client), Endpoint: encodeAddr(s.Endpoint.Addr()), EndpointPort: uint32(s.Endpoint.Port()),
		LeftNanos: int64(s.Left),
	}
}

func decodeAffinityEntry(s *pb.AffinityEntry) (sdk.AffinityEntry, error) {
	var d decoder
	return sdk.AffinityEntry{
		Name: decodeName(s.GetName()), Client: d.addr("client", s.GetClient()), Endpoint: d.addrPort("endpoint", s.GetEndpoint(), s.GetEndpointPort()),
		Left: time.Duration(s.GetLeftNanos()),
	}, d.failed()
}

func encodePacket(p sdk.Packet) *pb.TraceRequest {
	return &pb.TraceRequest{
		Protocol: pb.Protocol(p.Protocol), Origin: pb.Origin(p.Origin) + pb.Origin_ORIGIN_ELSEWHERE, In: p.In,
		From: encodeAddr(p.From.Addr()), FromPort: uint32(p.From.Port()), To: encodeAddr(p.To.Addr()), ToPort: uint32(p.To.Port()),
	}
}

func decodePacket(p *pb.TraceRequest) (sdk.Packet, error) {
	var d decoder
	out := sdk.Packet{
		Protocol: sdk.Protocol(enum(p.GetProtocol())), Origin: sdk.Origin(enum(p.GetOrigin() - pb.Origin_ORIGIN_ELSEWHERE)), In: p.GetIn(),
		From: d.addrPort("sender", p.GetFrom(), p.GetFromPort()), To: d.addrPort("destination", p.GetTo(), p.GetToPort()),
	}
	if out.From.Addr().Is4() != out.To.Addr().Is4() || out.Origin > sdk.OnNode {
		d.fail("packet", "from %s (%s) to %s", out.From, out.Origin, out.To)
	}
	return out, d.failed()
}

func encodeWatched(d sdk.WatchedPacket) *pb.WatchReply {
	return &pb.WatchReply{Packet: encodePacket(d.Packet), Verdict: pb.Verdict(d.Verdict) + pb.Verdict_VERDICT_DROP, At: Printable(d.At), Reason: Printable(d.Reason)}
}

func decodeWatched(r *pb.WatchReply) (d sdk.WatchedPacket, err error) {
	if r.GetVerdict() > pb.Verdict_VERDICT_FORWARD {
		return d, fmt.Errorf("verdict %d of a packet", r.GetVerdict())
	}
	d.Packet, err = decodePacket(r.GetPacket())
	d.Verdict, d.At, d.Reason = sdk.Verdict(enum(r.GetVerdict()-pb.Verdict_VERDICT_DROP)), oneLine(r.GetAt()), oneLine(r.GetReason())
	return d, err
}

func encodeTraced(t sdk.Traced) *pb.TraceReply {
	return &pb.TraceReply{Notes: each(t.Notes, Printable), Connections: each(t.Connections, Printable), Ways: each(t.Ways, func(w sdk.Way) *pb.Way {
		return &pb.Way{
			Verdict: pb.Verdict(w.Verdict) + pb.Verdict_VERDICT_DROP, To: encodeAddr(w.To.Addr()), ToPort: uint32(w.To.Port()),
			Masquerade: w.Masquerade, Then: Printable(w.Then), Steps: each(w.Steps, Printable),
		}
	})}
}

func decodeTraced(t *pb.TraceReply) (sdk.Traced, error) {
	var d decoder
	return sdk.Traced{Notes: t.GetNotes(), Connections: t.GetConnections(), Ways: each(t.GetWays(), func(w *pb.Way) sdk.Way {
		if w.GetVerdict() > pb.Verdict_VERDICT_FORWARD {
			d.fail("verdict", "%d is not known", w.GetVerdict())
		}
		return sdk.Way{
			Verdict: sdk.Verdict(enum(w.GetVerdict() - pb.Verdict_VERDICT_DROP)), To: d.addrPort("destination", w.GetTo(), w.GetToPort()),
			Masquerade: w.GetMasquerade(), Then: w.GetThen(), Steps: w.GetSteps(),
		}
	})}, d.failed()
}
