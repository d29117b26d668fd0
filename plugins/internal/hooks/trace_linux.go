// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/trace"
	"github.com/pointsman/pointsman/sdk"
)

// Trace says what becomes of a packet here at this moment. It may be called from any goroutine, and
// beside whatever writes; of rules that change meanwhile it may see a part. An error: the kernel could
// not be asked.
func Trace(ctx context.Context, p sdk.Packet) (sdk.Traced, error) {
	return TraceWith(ctx, p, nil)
}

// TraceWith is Trace, and says which virtual services of IPVS are another program's, by what foreign reports.
func TraceWith(ctx context.Context, p sdk.Packet, foreign func(Server) bool) (sdk.Traced, error) {
	k, err := read(ctx, sdk.FamilyOf(p.To.Addr()), foreign)
	var flows []flow
	if err == nil {
		flows, err = k.follow(p, 0)
	}
	if why := Unclear(err); why != "" {
		return sdk.Traced{CannotTell: why}, nil
	}
	if err != nil {
		return sdk.Traced{}, fmt.Errorf("trace a packet: %w", err)
	}
	return traced(flows), nil
}

// A Kernel is what packets of one IP family come through here, as it was when it was read. It is for one
// goroutine at a time.
type Kernel struct {
	kernel
	machine *machine
}

// Now reads what packets of a family come through now. It may be called beside whatever writes; of rules that
// change meanwhile it may see a part. Unclear says of an error whether something is not understood. The routes
// are asked for as packets are followed, until ctx ends.
func Now(ctx context.Context, family sdk.Family) (*Kernel, error) { return read(ctx, family, nil) }

func read(ctx context.Context, family sdk.Family, foreign func(Server) bool) (*Kernel, error) {
	if err := policies(family); err != nil {
		return nil, err
	}
	m, err := machineNow(ctx, family)
	if err != nil {
		return nil, err
	}
	k := &Kernel{kernel{blind: m.blind, route: m.route}, m}
	if k.stages, err = rulesNow(ctx, family); err != nil {
		return nil, err
	}
	if k.ipvs, err = ipvsNow(foreign); err != nil {
		return nil, err
	}
	k.stages = append(k.stages, k.ipvs.stages()...)
	k.sort()
	return k, nil
}

// Ends are where a packet may end that begins with a mark. A process of the node need not say by which address it
// sends. Unclear says of an error whether something is not understood.
func (k *Kernel) Ends(p sdk.Packet, mark uint32) ([]End, error) {
	flows, err := k.follow(p, mark)
	return endsOf(flows), err
}

// Own reports whether an address is one of the node's.
func (k *Kernel) Own(addr netip.Addr) bool { return k.machine.own(addr) }

// Takes reports whether a socket of the node takes what is sent to an address of it. Unclear says of an error
// whether that is not known.
func (k *Kernel) Takes(protocol sdk.Protocol, at netip.AddrPort) (bool, error) {
	takes, err := socketAt(protocol.String(), at, true)
	if err != nil {
		return false, unknownf("%v", err)
	}
	return takes, nil
}

func (k *Kernel) follow(p sdk.Packet, mark uint32) ([]flow, error) {
	m := k.machine
	if err := m.translated(p); err != nil {
		return nil, err
	}
	packet := trace.Packet{Protocol: p.Protocol.String(), From: p.From, To: p.To, In: p.In, Mark: mark, Local: m.own, Index: m.index}
	switch {
	case p.Origin == sdk.OnNode && !p.From.Addr().IsValid():
		from, refused, err := m.source(p.To.Addr(), mark)
		if err != nil || refused.why != "" {
			return []flow{refused.ends(packet)}, err
		}
		packet.From = netip.AddrPortFrom(from, 0)
	case p.Origin != sdk.OnNode && p.In == "":
		var err error
		if packet.In, err = m.entry(p.From.Addr()); err != nil {
			return nil, err
		}
	}
	return k.trace(packet)
}

// A machine is what the kernel says of routes and interfaces.
type machine struct {
	ctx    context.Context
	family sdk.Family
	local  []netip.Prefix // what its table of local routes has
	blinds map[string]error
	routes map[asked]route
	sends  map[sdk.Protocol]error // why it cannot be told where a process sends to
}

// An asked route is one of which the kernel has been asked.
type asked struct {
	from, to netip.Addr
	in       string
	mark     uint32
}

func machineNow(ctx context.Context, family sdk.Family) (*machine, error) {
	m := &machine{ctx: ctx, family: family, blinds: make(map[string]error), routes: make(map[asked]route), sends: make(map[sdk.Protocol]error)}
	of := map[sdk.Family]int{sdk.IPv4: unix.AF_INET, sdk.IPv6: unix.AF_INET6}[family]
	routes, err := netlink.RouteListFiltered(of, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	if err != nil {
		return nil, fmt.Errorf("list the local routes: %w", err)
	}
	for _, r := range routes {
		if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			bits, _ := r.Dst.Mask.Size()
			m.local = append(m.local, netip.PrefixFrom(addr, bits))
		}
	}
	return m, nil
}

// own reports whether the kernel calls an address local.
func (m *machine) own(addr netip.Addr) bool {
	for _, p := range m.local {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

func (m *machine) index(device string) uint32 {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return 0
	}
	return uint32(link.Index)
}

// entry is the interface by which packets of a caller come in: that by which replies leave.
func (m *machine) entry(from netip.Addr) (string, error) {
	if m.own(from) {
		return "", unknownf("%s is an address of the node itself: packets from it come in nowhere", from)
	}
	routes, err := netlink.RouteGet(from.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", unknownf("there is no route to %s, so that it is not known by which interface its packets come in", from)
	}
	return device(routes[0])
}

func device(r netlink.Route) (string, error) {
	link, err := net.InterfaceByIndex(r.LinkIndex)
	if err != nil {
		return "", fmt.Errorf("interface %d: %w", r.LinkIndex, err)
	}
	return link.Name, nil
}

// blind is why it cannot be told what happens at an interface: programs there may do what they like.
func (m *machine) blind(name string) error {
	if name == "lo" {
		return nil
	}
	err, known := m.blinds[name]
	if !known {
		err = m.programs(name)
		m.blinds[name] = err
	}
	return err
}

func (m *machine) programs(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	if xdp := link.Attrs().Xdp; xdp != nil && xdp.Attached {
		return unknownf("interface %s has %s of XDP, which may take packets", name, called(xdp.ProgId))
	}
	if err := atInterface(name, link.Attrs().Index); err != nil {
		return err
	}
	queues, err := netlink.QdiscList(link)
	if err != nil {
		return fmt.Errorf("list what queues interface %s has: %w", name, err)
	}
	for _, q := range queues {
		if q.Type() == "clsact" || q.Type() == "ingress" {
			return unknownf("interface %s has filters of traffic control (tc filter show dev %s), which may take packets", name, name)
		}
	}
	return nil
}

// route asks the kernel for a packet's route, as it would look it up.
func (m *machine) route(p trace.Packet, to netip.Addr) (route, error) {
	if err := m.ctx.Err(); err != nil {
		return route{}, err
	}
	a := asked{p.From.Addr(), to, p.In, p.Mark}
	r, known := m.routes[a]
	if known {
		return r, nil
	}
	if !p.From.IsValid() && p.Mark != 0 {
		if err := bySource(m.family); err != nil {
			return r, err
		}
	}
	found, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Iif: p.In, SrcAddr: p.From.Addr().AsSlice(), Mark: p.Mark})
	switch {
	case err != nil:
		r, err = m.refusal(a, err)
	case len(found) == 0:
		err = fmt.Errorf("no answer for the route to %s", to)
	case found[0].Type == unix.RTN_LOCAL:
		r = route{local: true, out: "lo", verdict: trace.Accept}
	case found[0].Type != unix.RTN_UNICAST:
		err = unknownf("the route to %s is of kind %d, and no common one", to, found[0].Type)
	case p.In != "" && m.family == sdk.IPv6 && !forwards():
		r = route{verdict: trace.Drop, why: "routing: the node does not forward IPv6 (sysctl net.ipv6.conf.all.forwarding)"}
	default:
		r.verdict = trace.Accept
		r.out, err = device(found[0])
	}
	if err == nil {
		m.routes[a] = r
	}
	return r, err
}

// source is the address by which a process of the node sends to another, or why it cannot.
func (m *machine) source(to netip.Addr, mark uint32) (from netip.Addr, refused route, err error) {
	if err := m.ctx.Err(); err != nil {
		return from, refused, err
	}
	found, err := netlink.RouteGetWithOptions(to.AsSlice(), &netlink.RouteGetOptions{Mark: mark})
	if err != nil {
		refused, err = m.refusal(asked{to: to, mark: mark}, err)
		return from, refused, err
	}
	if len(found) > 0 {
		from, _ = netip.AddrFromSlice(found[0].Src)
	}
	if !from.IsValid() {
		return from, refused, unknownf("routing: by which address this node sends to %s is not said", to)
	}
	return from.Unmap(), refused, nil
}

// refusal is what becomes of a packet that the kernel has no route for.
func (m *machine) refusal(a asked, err error) (route, error) {
	none := route{verdict: trace.Reject, why: fmt.Sprintf("routing: there is no route from %s to %s", a.from, a.to)}
	if !a.from.IsValid() { // what IPVS sends
		none.why = fmt.Sprintf("routing: there is no route to %s", a.to)
		if errors.Is(err, syscall.EINVAL) { // a route of kind blackhole
			return none, nil
		}
	}
	if a.in == "" {
		if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.EACCES) {
			return none, nil
		}
		if errors.Is(err, syscall.EINVAL) && m.own(a.from) { // a route of kind blackhole
			return route{verdict: trace.Reject, why: fmt.Sprintf("routing: nothing may be sent from %s to %s", a.from, a.to)}, nil
		}
		return route{}, unknownf("routing: a packet from %s to %s: %v", a.from, a.to, err)
	}
	switch {
	case errors.Is(err, syscall.EXDEV):
		return route{verdict: trace.Drop, why: fmt.Sprintf("routing: a packet from %s does not come in by %s (sysctl rp_filter)", a.from, a.in)}, nil
	case errors.Is(err, syscall.EINVAL):
		return route{verdict: trace.Drop, why: fmt.Sprintf("routing: a packet from %s to %s must not come in by %s", a.from, a.to, a.in)}, nil
	case errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EHOSTUNREACH):
		if !forwards4(a.in) {
			return route{verdict: trace.Drop, why: fmt.Sprintf("routing: the node does not forward what comes in by %s (sysctl net.ipv4.conf.%s.forwarding)", a.in, a.in)}, nil
		}
		return none, nil
	}
	return route{}, unknownf("routing: a packet from %s to %s by %s: %v", a.from, a.to, a.in, err)
}

func forwards() bool { return sysctl("net/ipv6/conf/all/forwarding") }

func forwards4(device string) bool { return sysctl("net/ipv4/conf/" + device + "/forwarding") }

func sysctl(name string) bool {
	data, err := os.ReadFile("/proc/sys/" + name)
	return err == nil && len(data) > 0 && data[0] == '1'
}
