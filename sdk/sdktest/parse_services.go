// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// parseServices reads blocks, each a Service and, indented, what it has:
//
//	ns1/web:http tcp
//	  cluster-ip 172.30.0.41:80
//	  endpoint   10.180.0.1:8080 here
//
// A block with addresses of both families is two Services.
func parseServices(lines []line) ([]sdk.Service, error) {
	var all []sdk.Service
	for len(lines) > 0 {
		n := 1 + slices.IndexFunc(lines[1:], func(l line) bool { return !l.indented })
		if n == 0 {
			n = len(lines)
		}
		block, err := parseBlock(lines[0], lines[1:n])
		if err != nil {
			return nil, err
		}
		for _, s := range block {
			if slices.ContainsFunc(all, func(t sdk.Service) bool { return t.Name == s.Name }) {
				return nil, lines[0].expected("each Service once; %s stands above", s.Name)
			}
			all = append(all, s)
		}
		lines = lines[n:]
	}
	slices.SortFunc(all, func(a, b sdk.Service) int { return a.Name.Compare(b.Name) })
	return all, nil
}

func parseBlock(head line, body []line) ([]sdk.Service, error) {
	name, err := parseName(head)
	if err != nil {
		return nil, err
	}
	b := block{of: map[sdk.Family]*sdk.Service{}, name: name}
	for _, l := range body {
		if err := b.add(l); err != nil {
			return nil, err
		}
	}
	if len(b.of) == 0 {
		return nil, head.expected("one frontend or more below")
	}
	var all []sdk.Service
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		s := b.of[family]
		if s == nil {
			continue
		}
		b.finish(s)
		if err := s.Check(); err != nil {
			return nil, head.expected("a sound Service: %v", err)
		}
		all = append(all, *s)
	}
	return all, nil
}

// parseName reads "namespace/service:port protocol"; the family comes from the
// addresses.
func parseName(l line) (sdk.Name, error) {
	if l.indented || len(l.words) != 2 {
		return sdk.Name{}, l.expected("namespace/service:port and a protocol, not indented")
	}
	namespace, rest, ok := strings.Cut(l.words[0], "/")
	service, port, _ := strings.Cut(rest, ":")
	if !ok || namespace == "" || service == "" {
		return sdk.Name{}, l.expected("namespace/service:port where %q stands", l.words[0])
	}
	protocol, err := l.protocol(l.words[1])
	return sdk.Name{Namespace: namespace, Service: service, Port: port, Protocol: protocol}, err
}

// A block is a Service, in each family, as its lines are read.
type block struct {
	name      sdk.Name
	of        map[sdk.Family]*sdk.Service
	nodePorts []sdk.Frontend // of every family in the block
	affinity  time.Duration
	health    uint16
	hints     map[string]string
}

func (b *block) in(addr netip.Addr) *sdk.Service {
	family := sdk.FamilyOf(addr)
	if b.of[family] == nil {
		b.of[family] = &sdk.Service{Name: b.name}
		b.of[family].Name.Family = family
	}
	return b.of[family]
}

func (b *block) finish(s *sdk.Service) {
	for _, f := range b.nodePorts {
		addr := netip.IPv4Unspecified()
		if s.Name.Family == sdk.IPv6 {
			addr = netip.IPv6Unspecified()
		}
		f.Addr = netip.AddrPortFrom(addr, f.Addr.Port())
		s.Frontends = append(s.Frontends, f)
	}
	s.Affinity, s.HealthPort, s.Hints = b.affinity, b.health, b.hints
	s.Normalize()
}

func (b *block) add(l line) error {
	if len(l.words) < 2 {
		return l.expected("a word and its value")
	}
	value := l.words[1]
	switch l.words[0] {
	case "cluster-ip":
		return b.frontend(l, sdk.ClusterIP)
	case "external-ip":
		return b.frontend(l, sdk.ExternalIP)
	case "load-balancer":
		return b.frontend(l, sdk.LoadBalancer)
	case "node-port":
		return b.nodePort(l)
	case "endpoint":
		return b.endpoint(l)
	case "serving":
		addr, err := l.addr(value)
		if err == nil {
			b.in(addr).Serving = append(b.in(addr).Serving, addr)
		}
		return err
	case "affinity":
		d, err := time.ParseDuration(value)
		if err != nil || d <= 0 {
			return l.expected("a time such as 3h where %q stands", value)
		}
		b.affinity = d
		return nil
	case "health-port":
		return l.port(value, &b.health)
	case "hint":
		key, hint, ok := strings.Cut(value, "=")
		if !ok {
			return l.expected("hint key=value")
		}
		if b.hints == nil {
			b.hints = map[string]string{}
		}
		b.hints[key] = hint
		return nil
	}
	return l.expected("cluster-ip, node-port, external-ip, load-balancer, endpoint, serving, affinity, health-port or hint")
}

func (b *block) frontend(l line, kind sdk.Kind) error {
	addr, err := l.addrPort(l.words[1])
	if err != nil {
		return err
	}
	f, err := parseTerms(l, sdk.Frontend{Kind: kind, Addr: addr, Policy: sdk.Cluster})
	if err == nil {
		b.in(addr.Addr()).Frontends = append(b.in(addr.Addr()).Frontends, f)
	}
	return err
}

func (b *block) nodePort(l line) error {
	var port uint16
	if err := l.port(l.words[1], &port); err != nil {
		return err
	}
	f := sdk.Frontend{Kind: sdk.NodePort, Addr: netip.AddrPortFrom(netip.Addr{}, port), Policy: sdk.Cluster}
	f, err := parseTerms(l, f)
	b.nodePorts = append(b.nodePorts, f)
	return err
}

// parseTerms reads what stands behind a frontend's address: "local", and "from"
// with ranges.
func parseTerms(l line, f sdk.Frontend) (_ sdk.Frontend, err error) {
	rest := l.words[2:]
	if len(rest) > 0 && rest[0] == "local" {
		f.Policy, rest = sdk.Local, rest[1:]
	}
	if len(rest) > 1 && rest[0] == "from" {
		f.Sources, err = l.prefixes(rest[1:])
		return f, err
	}
	if len(rest) > 0 {
		return f, l.expected("nothing, local, or from and ranges behind the address")
	}
	return f, nil
}

// endpoint reads "endpoint ADDR [here] [cluster-only|local-only]". One that is
// here is for both policies, another for the Cluster policy, unless it says.
func (b *block) endpoint(l line) error {
	addr, err := l.addrPort(l.words[1])
	if err != nil {
		return err
	}
	ep := sdk.Endpoint{Addr: addr}
	cluster, rest := true, l.words[2:]
	if len(rest) > 0 && rest[0] == "here" {
		ep.OnNode, rest = true, rest[1:]
	}
	local := ep.OnNode
	switch {
	case len(rest) == 0:
	case len(rest) == 1 && rest[0] == "cluster-only":
		local = false
	case len(rest) == 1 && rest[0] == "local-only":
		cluster, local = false, true
	default:
		return l.expected("here, cluster-only or local-only behind the address")
	}
	s := b.in(addr.Addr())
	if cluster {
		s.Cluster = append(s.Cluster, ep)
	}
	if local {
		s.Local = append(s.Local, ep)
	}
	return nil
}

func (l line) port(word string, to *uint16) error {
	n, err := strconv.ParseUint(word, 10, 16)
	if err != nil || n == 0 {
		return l.expected("a port number where %q stands", word)
	}
	*to = uint16(n)
	return nil
}

// defaultNode returns the node of a scenario that does not say otherwise.
func defaultNode() sdk.Node {
	return sdk.Node{
		Name:          "n1",
		Addrs:         []netip.Addr{netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("2001:db8::10")},
		NodePorts:     []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		Pods:          sdk.Pods{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.180.0.0/24"), netip.MustParsePrefix("fd00:10:180::/64")}},
		MasqueradeBit: 14,
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("172.30.0.0/16"), netip.MustParsePrefix("fd00:172:30::/112")},
	}
}

func parseNode(lines []line) (sdk.Node, error) {
	n := defaultNode()
	for _, l := range lines {
		if err := parseFact(&n, l); err != nil {
			return n, err
		}
	}
	return n, nil
}

func parseFact(n *sdk.Node, l line) (err error) {
	rest := l.words[1:]
	switch l.words[0] {
	case "name":
		return one(l, &n.Name)
	case "addresses":
		n.Addrs = nil
		for _, word := range rest {
			addr, err := l.addr(word)
			if err != nil {
				return err
			}
			n.Addrs = append(n.Addrs, addr)
		}
	case "node-ports":
		n.NodePorts, err = l.prefixes(rest)
	case "service-cidrs":
		n.ServiceCIDRs, err = l.prefixes(rest)
	case "pods":
		n.Pods, err = parsePods(l)
	case "masquerade-all":
		n.MasqueradeAll = true
	case "mark-bit":
		bit, err := strconv.ParseUint(l.words[len(l.words)-1], 10, 5)
		if err != nil {
			return l.expected("mark-bit and a number from 0 to 31")
		}
		n.MasqueradeBit = uint8(bit)
	default:
		return l.expected("name, addresses, node-ports, service-cidrs, pods, masquerade-all or mark-bit")
	}
	return err
}

// parsePods reads "pods unknown", "pods bridge NAME", "pods interface PREFIX" or
// "pods RANGE…".
func parsePods(l line) (sdk.Pods, error) {
	rest := l.words[1:]
	switch {
	case len(rest) == 1 && rest[0] == "unknown":
		return sdk.Pods{}, nil
	case len(rest) == 2 && rest[0] == "bridge":
		return sdk.Pods{Bridge: rest[1]}, nil
	case len(rest) == 2 && rest[0] == "interface":
		return sdk.Pods{InterfacePrefix: rest[1]}, nil
	case len(rest) == 0:
		return sdk.Pods{}, l.expected("pods unknown, pods bridge NAME, pods interface PREFIX, or pods RANGE…")
	}
	cidrs, err := l.prefixes(rest)
	return sdk.Pods{CIDRs: cidrs}, err
}

func one(l line, to *string) error {
	if len(l.words) != 2 {
		return l.expected("%s and one word", l.words[0])
	}
	*to = l.words[1]
	return nil
}
