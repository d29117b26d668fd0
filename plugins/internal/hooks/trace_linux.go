// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/plugins/internal/ipvslist"
	"github.com/pointsman/pointsman/plugins/internal/nftnl"
	"github.com/pointsman/pointsman/plugins/internal/oracle"
	"github.com/pointsman/pointsman/sdk"
)

// Trace walks a packet through the rules of the calling thread's network namespace. It may be called from any
// goroutine, and beside whatever writes; of rules that change meanwhile it may see a part. Relay names what decides
// at sockets of the node itself; empty: nothing that Services need. An error: the kernel could not be asked.
func Trace(ctx context.Context, p sdk.Packet, relay string) (sdk.Traced, error) {
	t, err := walk(ctx, p, relay)
	if err != nil {
		return sdk.Traced{}, fmt.Errorf("trace a packet: %w", err)
	}
	return t, nil
}

func walk(ctx context.Context, p sdk.Packet, relay string) (t sdk.Traced, err error) {
	family := sdk.FamilyOf(p.To.Addr())
	m := &machine{ctx: ctx, family: family, routes: make(map[asked]oracle.Route)}
	if m.local, err = localNow(family); err != nil {
		return t, err
	}
	packet := oracle.Packet{Protocol: p.Protocol.String(), From: p.From, To: p.To, In: p.In, Local: m.own, Index: index}
	if p.Origin != sdk.OnNode && p.In == "" {
		if packet.In, err = m.entry(p.From.Addr()); err != nil {
			return t, err
		}
	}
	n := oracle.Node{Route: m.route}
	if n.Bases, t.Notes, err = basesNow(ctx, family); err != nil {
		return t, err
	}
	paths, err := n.Walk(packet)
	if err != nil {
		return t, err
	}
	t.Ways = ways(paths, relay)
	t.Notes = append(t.Notes, m.programs(packet.In)...)
	if t.Connections, err = connections(p); err != nil {
		t.Notes = append(t.Notes, fmt.Sprintf("conntrack could not be read: %v", err))
	}
	return t, nil
}

// withSteps is how many ways have their steps.
const withSteps = 16

// ways returns those that paths come to: paths that end in the same way are one.
func ways(paths []oracle.Path, relay string) (all []sdk.Way) {
	for i := range paths {
		paths[i].Mark = 0
		paths[i].Masquerade = paths[i].Masquerade && paths[i].Verdict == oracle.Accept
	}
	for i, path := range oracle.Merge(paths) {
		w := sdk.Way{Verdict: verdicts[path.Verdict], To: path.To, Masquerade: path.Masquerade, Then: path.Then}
		if path.Local && path.Then == "" && path.Verdict == oracle.Accept && relay != "" {
			w.Then = fmt.Sprintf("%s at %s", relay, path.To)
		}
		for _, s := range path.Steps {
			if s.Matched && i < withSteps {
				w.Steps = append(w.Steps, s.String())
			}
		}
		all = append(all, w)
	}
	slices.SortStableFunc(all, func(a, b sdk.Way) int { return a.To.Compare(b.To) })
	return all
}

var verdicts = map[oracle.Verdict]sdk.Verdict{oracle.Accept: sdk.Forward, oracle.Drop: sdk.Drop, oracle.Reject: sdk.Reject}

// A machine is what the kernel says of routes and interfaces.
type machine struct {
	ctx    context.Context
	family sdk.Family
	local  []netip.Prefix // what its table of local routes has
	routes map[asked]oracle.Route
}

// An asked route is one of which the kernel has been asked.
type asked struct {
	to   netip.Addr
	mark uint32
}

func localNow(family sdk.Family) (local []netip.Prefix, err error) {
	of := map[sdk.Family]int{sdk.IPv4: unix.AF_INET, sdk.IPv6: unix.AF_INET6}[family]
	routes, err := netlink.RouteListFiltered(of, &netlink.Route{Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_TYPE)
	if err != nil {
		return nil, fmt.Errorf("list the local routes: %w", err)
	}
	for _, r := range routes {
		if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok {
			bits, _ := r.Dst.Mask.Size()
			local = append(local, netip.PrefixFrom(addr, bits))
		}
	}
	return local, nil
}

// own reports whether the kernel calls an address local.
func (m *machine) own(addr netip.Addr) bool {
	return slices.ContainsFunc(m.local, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func index(device string) uint32 {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return 0
	}
	return uint32(link.Index)
}

// entry is the interface by which packets of a caller come in: the one by which replies leave.
func (m *machine) entry(from netip.Addr) (string, error) {
	if m.own(from) {
		return "", fmt.Errorf("%s is an address of the node itself: packets from it come in nowhere", from)
	}
	routes, err := netlink.RouteGet(from.AsSlice())
	if err == nil && len(routes) == 0 {
		err = errors.New("there is no route")
	}
	if err != nil {
		return "", fmt.Errorf("it is not known by which interface packets from %s come in: %w", from, err)
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

// route asks the kernel for a packet's route (RTM_GETROUTE), once for each destination and mark.
func (m *machine) route(p oracle.Packet) (oracle.Route, error) {
	a := asked{p.Destination().Addr(), p.Mark}
	r, known := m.routes[a]
	if known {
		return r, nil
	}
	if err := m.ctx.Err(); err != nil {
		return r, err
	}
	found, err := netlink.RouteGetWithOptions(a.to.AsSlice(), &netlink.RouteGetOptions{Iif: p.In, SrcAddr: p.From.Addr().AsSlice(), Mark: p.Mark})
	if err == nil && len(found) == 0 {
		err = errors.New("there is no answer")
	}
	forwards := p.In == "" || forwardsFrom(m.family, p.In)
	switch unreachable := errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH); {
	case err == nil && found[0].Type == unix.RTN_LOCAL:
		r = oracle.Route{Local: true, Out: "lo", Verdict: oracle.Accept, Text: fmt.Sprintf("routing: %s is this node's own", a.to)}
	case (err == nil || unreachable) && !forwards:
		r = oracle.Route{Verdict: oracle.Drop, Text: fmt.Sprintf("routing: the node does not forward what comes in by %s (sysctl forwarding)", p.In)}
	case err == nil:
		r.Verdict = oracle.Accept
		if r.Out, err = device(found[0]); err != nil {
			return r, err
		}
		r.Text = fmt.Sprintf("routing: to %s by %s", a.to, r.Out)
	default: // EXDEV: rp_filter; EINVAL: a blackhole, or an address that may not be there
		r = oracle.Route{Verdict: oracle.Drop, Text: fmt.Sprintf("routing: from %s to %s: %v", p.From.Addr(), a.to, err)}
		if unreachable || p.In == "" {
			r.Verdict = oracle.Reject
		}
		if p.In != "" {
			r.Text += fmt.Sprintf(" (ip route get %s from %s iif %s)", a.to, p.From.Addr(), p.In)
		}
	}
	m.routes[a] = r
	return r, nil
}

// forwardsFrom reports whether the node forwards what comes in by an interface. Of IPv6 one setting for all counts.
func forwardsFrom(family sdk.Family, device string) bool {
	name := "ipv4/conf/" + device
	if family == sdk.IPv6 {
		name = "ipv6/conf/all"
	}
	data, err := os.ReadFile("/proc/sys/net/" + name + "/forwarding")
	return err == nil && len(data) > 0 && data[0] == '1'
}

// programs names programs at the interfaces by which a packet comes in or may leave.
func (m *machine) programs(in string) (notes []string) {
	var names []string
	for _, r := range m.routes {
		names = append(names, r.Out)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(append([]string{in}, names...)) {
		if link, err := netlink.LinkByName(name); name != "lo" && name != "" && err == nil {
			notes = append(notes, programsAt(link)...)
		}
	}
	return notes
}

func programsAt(link netlink.Link) (notes []string) {
	name := link.Attrs().Name
	add := func(format string, args ...any) {
		notes = append(notes, fmt.Sprintf(format, args...)+", which the walk does not follow")
	}
	if xdp := link.Attrs().Xdp; xdp != nil && xdp.Attached {
		add("interface %s has a program of XDP (bpftool prog show id %d)", name, xdp.ProgId)
	}
	queues, _ := netlink.QdiscList(link)
	if slices.ContainsFunc(queues, func(q netlink.Qdisc) bool { return q.Type() == "clsact" || q.Type() == "ingress" }) {
		add("interface %s may have filters of traffic control (tc filter show dev %s)", name, name)
	}
	for _, kind := range []uint32{unix.BPF_TCX_INGRESS, unix.BPF_TCX_EGRESS} {
		if attached(uint32(link.Attrs().Index), kind) {
			add("interface %s has programs of tcx (bpftool net show dev %s)", name, name)
			break
		}
	}
	return notes
}

// attached reports whether programs of tcx are at an interface, which no list of its queues shows (since Linux 6.6).
// Where the kernel cannot be asked there are none that are known.
func attached(index, kind uint32) bool {
	query := struct { // union bpf_attr of BPF_PROG_QUERY; without a buffer the kernel says only how many there are
		target, kind, flags, attachFlags uint32
		ids                              uint64
		count, _                         uint32
		programFlags                     uint64
		linkIDs, linkFlags, revision     uint64
	}{target: index, kind: kind}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	return (errno == 0 || errno == unix.ENOSPC) && query.count > 0
}

// connections are those that conntrack has from a caller to a destination.
func connections(p sdk.Packet) ([]string, error) {
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	family := netlink.InetFamily(map[sdk.Family]uint8{sdk.IPv4: unix.AF_INET, sdk.IPv6: unix.AF_INET6}[sdk.FamilyOf(p.To.Addr())])
	found := &tracked{packet: p}
	_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, family, found) // the one call that holds no list of all
	return found.all, err
}

// tracked notes the connections like a packet. To netlink none matches, so that none is deleted.
type tracked struct {
	packet sdk.Packet
	all    []string
}

// mostConnections is how many connections are named.
const mostConnections = 5

var tcpStates = []string{"none", "syn sent", "syn received", "established", "fin wait", "close wait", "last ack", "time wait", "close"}

func (t *tracked) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	from, to := endpoint(f.Forward.SrcIP, f.Forward.SrcPort), endpoint(f.Forward.DstIP, f.Forward.DstPort)
	numbers := map[uint8]sdk.Protocol{unix.IPPROTO_TCP: sdk.TCP, unix.IPPROTO_UDP: sdk.UDP, unix.IPPROTO_SCTP: sdk.SCTP}
	if numbers[f.Forward.Protocol] != t.packet.Protocol || from.Addr() != t.packet.From.Addr() || to != t.packet.To || len(t.all) == mostConnections {
		return false
	}
	text := fmt.Sprintf("%s to %s, answered by %s", from, to, endpoint(f.Reverse.SrcIP, f.Reverse.SrcPort))
	if tcp, is := f.ProtoInfo.(*netlink.ProtoInfoTCP); is && int(tcp.State) < len(tcpStates) {
		text += ", " + tcpStates[tcp.State]
	}
	t.all = append(t.all, text)
	return false
}

func endpoint(ip net.IP, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// virtualServer names the virtual service of IPVS that a packet comes to, that of its mark first; empty: none.
func virtualServer(list []ipvslist.Server, p oracle.Packet) string {
	to := p.Destination()
	for _, s := range list {
		if s.Mark != 0 && s.Mark == p.Mark {
			return fmt.Sprintf("of mark %#x, %s", s.Mark, s.Scheduler)
		}
	}
	for _, s := range list {
		if s.Mark == 0 && s.Protocol.String() == p.Protocol && s.Addr.Addr() == to.Addr() && (s.Addr.Port() == to.Port() || s.Addr.Port() == 0) {
			return fmt.Sprintf("%s %s, %s", p.Protocol, to, s.Scheduler)
		}
	}
	return ""
}

// balances are where IPVS takes packets: NF_IP_PRI_NAT_SRC - 1 and NF_IP_PRI_NAT_DST + 2.
func balances() ([]oracle.Base, error) {
	file, err := os.Open("/proc/thread-self/net/ip_vs")
	if err != nil { // the kernel has no IPVS
		return nil, nil
	}
	defer file.Close()
	list, err := ipvslist.Read(file)
	if err != nil {
		return nil, err
	}
	at := func(p oracle.Packet) ([]oracle.Path, error) {
		path := through(p)
		if v := virtualServer(list, p); v != "" {
			path.Then = "IPVS, virtual service " + v + " (ipvsadm -Ln)"
		}
		return []oracle.Path{path}, nil
	}
	return []oracle.Base{{Of: "IPVS", Hook: nftnl.Input, Priority: 99, At: at}, {Of: "IPVS", Hook: nftnl.Output, Priority: -98, At: at}}, nil
}

// through is the path of a packet that a base chain lets pass.
func through(p oracle.Packet) oracle.Path {
	return oracle.Path{Verdict: oracle.Accept, To: p.Destination(), Chance: 1, Mark: p.Mark}
}
