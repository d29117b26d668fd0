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

// Trace evaluates the rules in the calling thread's network namespace for a packet. It is safe for concurrent
// use, also with writers, but may see only a part of a concurrent change. relay names the process that decides
// at sockets of the node, or is empty if Services need none. It returns an error if the kernel cannot be read.
func Trace(ctx context.Context, p sdk.Packet, relay string) (t sdk.Traced, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("trace a packet: %w", err)
		}
	}()
	family := sdk.FamilyOf(p.To.Addr())
	m := &machine{ctx: ctx, family: family, local: make(map[netip.Addr]bool), routes: make(map[asked]oracle.Route)}
	packet := oracle.Packet{Protocol: p.Protocol.String(), From: p.From, To: p.To, In: p.In, Local: m.isLocal, Index: index}
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

// withSteps is the number of ways that are reported with their steps.
const withSteps = 16

// ways converts paths to ways. Paths with the same end become one.
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

// A machine reads routes and interfaces from the kernel.
type machine struct {
	ctx    context.Context
	family sdk.Family
	local  map[netip.Addr]bool // whether an address is the node's own
	routes map[asked]oracle.Route
}

// An asked identifies a route lookup.
type asked struct {
	to   netip.Addr
	mark uint32
}

// get asks the kernel for the route to an address (RTM_GETROUTE), and returns its type and device.
func get(to netip.Addr, o *netlink.RouteGetOptions) (kind int, device string, err error) {
	routes, err := netlink.RouteGetWithOptions(to.AsSlice(), o)
	if err == nil && len(routes) == 0 {
		err = errors.New("no answer")
	}
	if err != nil {
		return 0, "", err
	}
	link, err := net.InterfaceByIndex(routes[0].LinkIndex)
	if err != nil {
		return 0, "", fmt.Errorf("interface %d: %w", routes[0].LinkIndex, err)
	}
	return routes[0].Type, link.Name, nil
}

// isLocal reports whether an address is local.
func (m *machine) isLocal(addr netip.Addr) bool {
	local, known := m.local[addr]
	if !known {
		kind, _, err := get(addr, nil) // with an error there is no local route
		local = err == nil && kind == unix.RTN_LOCAL
		m.local[addr] = local
	}
	return local
}

func index(device string) uint32 {
	link, err := net.InterfaceByName(device)
	if err != nil {
		return 0
	}
	return uint32(link.Index)
}

// entry returns the interface on which packets of a client arrive: the one by which replies leave.
func (m *machine) entry(from netip.Addr) (string, error) {
	if m.isLocal(from) {
		return "", fmt.Errorf("%s is an address of the node itself: no interface receives packets from it", from)
	}
	_, device, err := get(from, nil)
	if err != nil {
		return "", fmt.Errorf("find the interface that receives packets from %s: %w", from, err)
	}
	return device, nil
}

// route looks up a packet's route, once for each destination and mark.
func (m *machine) route(p oracle.Packet) (oracle.Route, error) {
	a := asked{p.Destination().Addr(), p.Mark}
	r, known := m.routes[a]
	if known {
		return r, nil
	}
	if err := m.ctx.Err(); err != nil {
		return r, err
	}
	kind, out, err := get(a.to, &netlink.RouteGetOptions{Iif: p.In, SrcAddr: p.From.Addr().AsSlice(), Mark: p.Mark})
	forwards := p.In == "" || forwardsFrom(m.family, p.In)
	switch unreachable := errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH); {
	case errors.As(err, new(*net.OpError)): // the interface has just been removed
		return r, err
	case err == nil && kind == unix.RTN_LOCAL:
		r = oracle.Route{Local: true, Out: "lo", Verdict: oracle.Accept, Text: fmt.Sprintf("routing: %s is this node's own", a.to)}
	case (err == nil || unreachable) && !forwards:
		r = oracle.Route{Verdict: oracle.Drop, Text: fmt.Sprintf("routing: the node does not forward packets that arrive on %s (sysctl forwarding)", p.In)}
	case err == nil:
		r = oracle.Route{Out: out, Verdict: oracle.Accept, Text: fmt.Sprintf("routing: to %s by %s", a.to, out)}
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

// forwardsFrom reports whether the node forwards packets that arrive on an interface. IPv6 has one setting for
// all interfaces.
func forwardsFrom(family sdk.Family, device string) bool {
	name := "ipv4/conf/" + device
	if family == sdk.IPv6 {
		name = "ipv6/conf/all"
	}
	data, err := os.ReadFile("/proc/sys/net/" + name + "/forwarding")
	return err == nil && len(data) > 0 && data[0] == '1'
}

// programs names the interfaces on which a packet arrives or may leave that have programs of XDP, traffic control or tcx.
func (m *machine) programs(in string) (notes []string) {
	names := []string{in}
	for _, r := range m.routes {
		names = append(names, r.Out)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		link, err := netlink.LinkByName(name)
		if err != nil || name == "lo" {
			continue
		}
		queues, _ := netlink.QdiscList(link)
		controls := slices.ContainsFunc(queues, func(q netlink.Qdisc) bool { return q.Type() == "clsact" || q.Type() == "ingress" })
		xdp, index := link.Attrs().Xdp, uint32(link.Attrs().Index)
		if xdp != nil && xdp.Attached || controls || hasTCX(index, unix.BPF_TCX_INGRESS) || hasTCX(index, unix.BPF_TCX_EGRESS) {
			notes = append(notes, fmt.Sprintf("interface %s may have programs of XDP or traffic control (bpftool net show dev %[1]s; tc filter show dev %[1]s), which the walk does not follow", name))
		}
	}
	return notes
}

// hasTCX reports whether an interface has tcx programs (Linux 6.6), which are in no qdisc listing. It returns
// false if the kernel cannot be asked.
func hasTCX(index, kind uint32) bool {
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

// connections returns the conntrack entries from a client to a destination.
func connections(p sdk.Packet) ([]string, error) {
	h, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer h.Close()
	family := netlink.InetFamily(map[sdk.Family]uint8{sdk.IPv4: unix.AF_INET, sdk.IPv6: unix.AF_INET6}[sdk.FamilyOf(p.To.Addr())])
	found := &tracked{packet: p}
	_, err = h.ConntrackDeleteFilters(netlink.ConntrackTable, family, found) // the only call of the library that does not build a list of all entries
	return found.all, err
}

// tracked is a filter that records the connections that match a packet. It never reports a match to the
// library, so nothing is deleted.
type tracked struct {
	packet sdk.Packet
	all    []string
}

// mostConnections is the maximum number of reported connections.
const mostConnections = 5

var tcpStates = []string{"none", "syn sent", "syn received", "established", "fin wait", "close wait", "last ack", "time wait", "close"}

func (t *tracked) MatchConntrackFlow(f *netlink.ConntrackFlow) bool {
	from, to := endpoint(f.Forward.SrcIP, f.Forward.SrcPort), endpoint(f.Forward.DstIP, f.Forward.DstPort)
	if f.Forward.Protocol != numbers[t.packet.Protocol] || from.Addr() != t.packet.From.Addr() || to != t.packet.To || len(t.all) == mostConnections {
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

// virtualServer returns the name of the IPVS virtual server that takes a packet, one for its mark first, or "".
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

// ipvsBases returns the base chains at which IPVS takes packets: priorities NF_IP_PRI_NAT_SRC - 1 and
// NF_IP_PRI_NAT_DST + 2.
func ipvsBases() ([]oracle.Base, error) {
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
		path := acceptedPath(p)
		if v := virtualServer(list, p); v != "" {
			path.Then = "IPVS, virtual service " + v + " (ipvsadm -Ln)"
		}
		return []oracle.Path{path}, nil
	}
	return []oracle.Base{{Of: "IPVS", Hook: nftnl.Input, Priority: 99, At: at}, {Of: "IPVS", Hook: nftnl.Output, Priority: -98, At: at}}, nil
}

// acceptedPath returns the path of a packet that a base chain accepts.
func acceptedPath(p oracle.Packet) oracle.Path {
	return oracle.Path{Verdict: oracle.Accept, To: p.Destination(), Chance: 1, Mark: p.Mark}
}
