// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
)

// A nodeConfig has the inputs of rules and pieces that do not depend on Services.
type nodeConfig struct {
	family    sdk.Family
	node      sdk.Node
	addrs     []netip.Addr // addresses of the node that take node ports
	scheduler string
}

// A render collects what one Service needs.
type render struct {
	nodeConfig
	svc        sdk.Service
	scheduling scheduling
	lists      map[sdk.Policy]dests
	servers    map[serviceKey]server
	piece
}

// want returns what svc needs, independently of the role. It is pure. mark is the Service's mark, or zero
// unless needsMark.
func (n nodeConfig) want(svc sdk.Service, mark uint32) (*piece, error) {
	r := render{
		nodeConfig: n, svc: svc, scheduling: scheduling{scheduler: n.scheduler, affinity: seconds(svc.Affinity)},
		lists:   map[sdk.Policy]dests{sdk.Cluster: newDests(addrs(svc.Cluster))},
		servers: make(map[serviceKey]server), piece: piece{mark: mark},
	}
	if len(svc.Cluster) > 0 { // without cluster endpoints there are no local ones either
		r.lists[sdk.Local] = newDests(addrs(svc.Local))
	}
	if strings.ContainsFunc(iptables.Label(svc.Name), isBadRune) {
		return nil, &sdk.Refusal{Field: "name", Why: fmt.Sprintf("%q cannot be stored in the comment of a set", svc.Name)}
	}
	switch svc.Name.Protocol {
	case sdk.TCP:
		r.drains = r.scheduling.drains()
	case sdk.UDP: // flows stay at endpoints that still serve
		r.stay = serving(svc)
	}
	for _, f := range svc.Frontends {
		r.addFrontend(f)
	}
	r.addHairpins()
	if needsMark(svc) {
		at := serviceKey{family: n.family, mark: mark}
		r.servers[at] = server{at: at, scheduling: r.scheduling, dests: r.lists[sdk.Cluster]}
	}
	if svc.HealthPort != 0 {
		r.members = append(r.members, member{entry: entry{set: healthPorts, family: n.family, port: svc.HealthPort}})
	}
	r.members = sortMembers(r.members)
	slices.SortFunc(r.vips, netip.Addr.Compare)
	r.piece.servers = slices.SortedFunc(maps.Values(r.servers), func(a, b server) int { return compareServices(a.at, b.at) })
	p := r.piece // without the rest of r
	return &p, nil
}

// serving returns the addresses of all endpoints that serve svc, including those that policy or readiness
// exclude.
func serving(svc sdk.Service) []netip.Addr {
	all := slices.Clone(svc.Serving)
	for _, ep := range svc.Reachable() {
		all = append(all, ep.Addr.Addr())
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// seconds converts an affinity timeout to IPVS, which takes whole seconds. The result is at least one.
func seconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(max(1, d/time.Second))
}

// needsMark reports whether svc has an external frontend under the Local policy. Its clients on this node use
// another endpoint list than the others, so they need a second virtual server.
func needsMark(svc sdk.Service) bool {
	return slices.ContainsFunc(svc.Frontends, func(f sdk.Frontend) bool { return f.External() && f.Policy == sdk.Local })
}

// addFrontend adds virtual servers for each address of f, and the set members that the fixed chains look up. A
// frontend that names an address takes precedence over a node port at that address.
func (r *render) addFrontend(f sdk.Frontend) {
	any := f.Addr.Addr().IsUnspecified()
	for _, addr := range r.addrsOf(f) {
		at := serviceKey{family: r.family, protocol: r.svc.Name.Protocol, addr: addr}
		if _, there := r.servers[at]; there && any {
			continue
		}
		members := sortMembers(append(r.nodeLocalMark(f, addr), r.dropMembers(f, addr)...))
		r.servers[at] = server{at: at, any: any, scheduling: r.scheduling, dests: r.lists[f.Policy], members: members}
	}
	for _, s := range r.setsFor(f) {
		r.addMembers(s, f)
	}
	if vip := f.Addr.Addr(); !any && !slices.Contains(r.vips, vip) {
		r.vips = append(r.vips, vip)
	}
}

// addrsOf returns the addresses to which packets for f are sent.
func (r *render) addrsOf(f sdk.Frontend) []netip.AddrPort {
	if !f.Addr.Addr().IsUnspecified() {
		return []netip.AddrPort{f.Addr}
	}
	all := make([]netip.AddrPort, len(r.addrs))
	for i, addr := range r.addrs {
		all[i] = netip.AddrPortFrom(addr, f.Addr.Port())
	}
	return all
}

// nodeLocalMark returns the member that gives packets from this node to an external Local frontend the mark of
// the virtual server with all endpoints.
func (r *render) nodeLocalMark(f sdk.Frontend, at netip.AddrPort) []member {
	if !f.External() || f.Policy != sdk.Local {
		return nil
	}
	return []member{{r.entry(nearMarks, at), note{comment: iptables.Label(r.svc.Name), mark: r.mark}}}
}

// dropMembers returns the members by which KUBE-IPVS-DROP drops packets without an answer: of clients that are
// not in the source ranges, and of allowed clients for which the policy leaves no endpoint.
func (r *render) dropMembers(f sdk.Frontend, at netip.AddrPort) (all []member) {
	whose := note{comment: iptables.Label(r.svc.Name)}
	if len(f.Sources) > 0 {
		all = append(all, member{r.entry(restricted, at), whose})
	}
	for _, source := range f.Sources {
		for _, half := range setPrefixes(source) {
			e := r.entry(sources, at)
			e.from = half
			all = append(all, member{e, whose})
		}
	}
	switch {
	case len(r.svc.Cluster) == 0 || len(r.svc.Endpoints(f.Policy)) > 0:
	case f.External():
		all = append(all, member{r.entry(noneNearOuter, at), whose})
	default:
		all = append(all, member{r.entry(noneNear, at), whose})
	}
	return all
}

// setPrefixes returns p in a form that a hash:ip,port,net set accepts: it has no /0, so that is two /1.
func setPrefixes(p netip.Prefix) []netip.Prefix {
	p = p.Masked()
	if p.Bits() > 0 {
		return []netip.Prefix{p}
	}
	upper := p.Addr().AsSlice()
	upper[0] = 0x80
	high, _ := netip.AddrFromSlice(upper)
	return []netip.Prefix{netip.PrefixFrom(p.Addr(), 1), netip.PrefixFrom(high, 1)}
}

// setsFor returns the sets that have f, by its kind and policy.
func (r *render) setsFor(f sdk.Frontend) []set {
	var all, local set
	switch {
	case f.Kind == sdk.ClusterIP:
		return []set{clusterIPs}
	case f.Kind == sdk.LoadBalancer:
		all, local = loadBalancers, loadBalancersLocal
	case f.Addr.Addr().IsUnspecified():
		all, local = nodePortSets(r.svc.Name.Protocol)
	case f.Policy == sdk.Local:
		return []set{externalIPsLocal}
	default:
		return []set{externalIPs}
	}
	if f.Policy == sdk.Local {
		return []set{all, local}
	}
	return []set{all}
}

// addMembers adds f to set s, with a comment that names the Service.
func (r *render) addMembers(s set, f sdk.Frontend) {
	n := note{comment: comment(r.svc.Name, f)}
	if sets[s].form == formPort {
		r.members = append(r.members, member{entry{set: s, family: r.family, port: f.Addr.Port()}, n})
		return
	}
	for _, at := range r.addrsOf(f) {
		r.members = append(r.members, member{r.entry(s, at), n})
	}
}

// addHairpins adds the endpoints that may be clients of their own Service.
func (r *render) addHairpins() {
	for _, ep := range r.svc.Reachable() {
		if r.svc.MayCallItself(ep) {
			e := r.entry(loopBack, ep.Addr)
			e.from = hostPrefix(ep.Addr.Addr())
			r.members = append(r.members, member{entry: e})
		}
	}
}

func (r *render) entry(s set, addr netip.AddrPort) entry {
	return entry{set: s, family: r.family, addr: addr.Addr(), protocol: r.svc.Name.Protocol, port: addr.Port()}
}

func addrs(list []sdk.Endpoint) []netip.AddrPort {
	var all []netip.AddrPort
	for _, ep := range list {
		all = append(all, ep.Addr)
	}
	slices.SortFunc(all, netip.AddrPort.Compare) // the host sends them sorted
	return all
}

// comment returns the comment of a frontend in a set: the Service's name, and what the set does not say about
// the frontend.
func comment(n sdk.Name, f sdk.Frontend) string {
	text := iptables.Label(n)
	if f.Kind == sdk.NodePort && !f.Addr.Addr().IsUnspecified() {
		text += " " + f.Kind.String()
	}
	if f.Policy == sdk.Local {
		text += " " + f.Policy.String()
	}
	return text
}

// parseComment returns the Service that a comment names.
func parseComment(comment string, p sdk.Protocol, f sdk.Family) (sdk.Name, bool) {
	text, _, _ := strings.Cut(comment, " ")
	name := iptables.Labelled(text)
	name.Protocol, name.Family = p, f
	return name, name.Service != ""
}

// isBadRune reports whether a set's comment cannot hold r.
func isBadRune(r rune) bool { return r == '"' || r == '\\' || r == ' ' || !unicode.IsPrint(r) }
