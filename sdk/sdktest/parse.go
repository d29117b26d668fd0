// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bytes"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/pointsman/pointsman/sdk"
)

var sectionNames = []string{"node", "services", "packets", "manifests"}

// Parse parses a scenario. An error names the file and line, and what was expected there. It is
// also an error if a packet's outcome is not the one that sdk's rule gives: so the files and
// the rule cannot disagree.
func Parse(name string, data []byte) (s Scenario, err error) {
	defer func() {
		switch wrong := recover().(type) { // as text/template/parse does
		case nil:
		case lineError:
			err = fmt.Errorf("%s:%d: %s", name, wrong.line, wrong.what)
		default:
			panic(wrong)
		}
	}()
	archive := txtar.Parse(data)
	s = Scenario{Name: strings.TrimSuffix(path.Base(name), ".txtar"), Doc: strings.TrimSpace(string(archive.Comment)), Node: defaultNode()}
	if s.Doc == "" {
		panic(lineError{1, "expected a sentence that says what the scenario shows"})
	}
	sections := map[string][]line{}
	at := 1 + bytes.Count(archive.Comment, []byte("\n"))
	for _, f := range archive.Files {
		if !slices.Contains(sectionNames, f.Name) || sections[f.Name] != nil {
			panic(lineError{at, "expected one each of the sections " + strings.Join(sectionNames, ", ")})
		}
		sections[f.Name] = split(f.Data, at+1)
		if f.Name == "manifests" {
			s.Manifests = f.Data
		}
		at += 1 + bytes.Count(f.Data, []byte("\n"))
	}
	for _, l := range sections["node"] {
		parseFact(&s.Node, l)
	}
	s.Services = parseServices(sections["services"])
	for _, l := range sections["packets"] {
		s.Packets = append(s.Packets, parsePacket(l, s.Node, s.Services))
	}
	if len(s.Packets) == 0 {
		panic(lineError{at, "expected a section -- packets -- with one packet or more"})
	}
	return s, nil
}

// A line is a line that is neither empty nor a comment.
type line struct {
	number   int
	indented bool
	words    []string
	text     string
}

// split removes the comments ("# …"). It never returns nil.
func split(data []byte, first int) []line {
	lines := []line{}
	for i, text := range strings.Split(string(data), "\n") {
		indented := strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t")
		text, _, _ = strings.Cut(" "+text, " #")
		if words := strings.Fields(text); len(words) > 0 {
			lines = append(lines, line{first + i, indented, words, strings.TrimSpace(text)})
		}
	}
	return lines
}

// A lineError is an error at a line. Parse panics with it internally, and returns it.
type lineError struct {
	line int
	what string
}

// expected returns the error that something else was expected at l.
func (l line) expected(format string, args ...any) lineError {
	return lineError{l.number, fmt.Sprintf("expected "+format, args...) + fmt.Sprintf("; found %q", l.text)}
}

// convert converts a word by parse, whose error means that something else was expected there.
func convert[T any](l line, word, expected string, parse func(string) (T, error)) T {
	v, err := parse(word)
	if err != nil {
		panic(l.expected(expected+" where %q stands", word))
	}
	return v
}

func (l line) addr(word string) netip.Addr {
	return convert(l, word, "an IP address", netip.ParseAddr)
}

func (l line) addrPort(word string) netip.AddrPort {
	addr := convert(l, word, "address:port", netip.ParseAddrPort)
	l.port(strconv.Itoa(int(addr.Port())))
	return addr
}

func (l line) port(word string) uint16 {
	return convert(l, word, "a port number", func(word string) (uint16, error) {
		n, err := strconv.ParseUint(word, 10, 16)
		if n == 0 {
			err = strconv.ErrRange
		}
		return uint16(n), err
	})
}

func (l line) prefixes(words []string) (list []netip.Prefix) {
	for _, word := range words {
		p := convert(l, word, "a range such as 10.0.0.0/8", netip.ParsePrefix)
		if p != p.Masked() {
			panic(l.expected("the range %s where %q stands", p.Masked(), word))
		}
		list = append(list, p)
	}
	return list
}

func (l line) protocol(word string) sdk.Protocol {
	protocols := []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP}
	i := slices.IndexFunc(protocols, func(p sdk.Protocol) bool { return p.String() == word })
	if i < 0 {
		panic(l.expected("tcp, udp or sctp where %q stands", word))
	}
	return protocols[i]
}

// defaultNode returns the node of a scenario without a section node.
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

// parseFact parses a line of the section node.
func parseFact(n *sdk.Node, l line) {
	rest := l.words[1:]
	switch l.words[0] {
	case "addresses":
		n.Addrs = nil
		for _, word := range rest {
			n.Addrs = append(n.Addrs, l.addr(word))
		}
	case "node-ports":
		n.NodePorts = l.prefixes(rest)
	case "service-cidrs":
		n.ServiceCIDRs = l.prefixes(rest)
	case "pods":
		n.Pods = parsePods(l, rest)
	case "masquerade-all":
		n.MasqueradeAll = true
	case "mark-bit":
		bit, err := strconv.ParseUint(l.words[len(l.words)-1], 10, 5)
		if err != nil {
			panic(l.expected("mark-bit and a number from 0 to 31"))
		}
		n.MasqueradeBit = uint8(bit)
	default:
		panic(l.expected("addresses, node-ports, service-cidrs, pods, masquerade-all or mark-bit"))
	}
}

// parsePods parses the words after "pods".
func parsePods(l line, rest []string) sdk.Pods {
	switch {
	case len(rest) == 1 && rest[0] == "unknown":
		return sdk.Pods{}
	case len(rest) == 2 && rest[0] == "bridge":
		return sdk.Pods{Bridge: rest[1]}
	case len(rest) == 2 && rest[0] == "interface":
		return sdk.Pods{InterfacePrefix: rest[1]}
	}
	return sdk.Pods{CIDRs: l.prefixes(rest)}
}

// parseServices parses blocks, each a Service with its indented properties:
//
//	ns1/web:http tcp
//	  cluster-ip 172.30.0.41:80
//	  endpoint   10.180.0.1:8080 here
//
// A block with addresses of both families is two Services.
func parseServices(lines []line) (all []sdk.Service) {
	for len(lines) > 0 {
		head := lines[0]
		lines = lines[1:]
		b := block{sdk.Service{Name: parseName(head)}}
		for ; len(lines) > 0 && lines[0].indented; lines = lines[1:] {
			b.add(lines[0])
		}
		services := b.services()
		if len(services) == 0 {
			panic(head.expected("one frontend or more below"))
		}
		for _, s := range services {
			if err := s.Check(); err != nil {
				panic(head.expected("a sound Service: %v", err))
			}
			if slices.ContainsFunc(all, func(t sdk.Service) bool { return t.Name == s.Name }) {
				panic(head.expected("each Service once; %s stands above", s.Name))
			}
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b sdk.Service) int { return a.Name.Compare(b.Name) })
	return all
}

// parseName parses "namespace/service:port protocol"; the family follows from the addresses.
func parseName(l line) sdk.Name {
	if l.indented || len(l.words) != 2 {
		panic(l.expected("namespace/service:port and a protocol, not indented"))
	}
	namespace, rest, ok := strings.Cut(l.words[0], "/")
	service, port, _ := strings.Cut(rest, ":")
	if !ok || namespace == "" || service == "" {
		panic(l.expected("namespace/service:port where %q stands", l.words[0]))
	}
	return sdk.Name{Namespace: namespace, Service: service, Port: port, Protocol: l.protocol(l.words[1])}
}

// A block is a Service while its lines are parsed, with the addresses of both families. A node
// port for all addresses has no address yet.
type block struct{ sdk.Service }

// services returns the Services of the families that the block has addresses of.
func (b *block) services() (all []sdk.Service) {
	for family, every := range map[sdk.Family]netip.Addr{sdk.IPv4: netip.IPv4Unspecified(), sdk.IPv6: netip.IPv6Unspecified()} {
		s := b.Service
		s.Name.Family = family
		s.Serving = slices.DeleteFunc(slices.Clone(b.Serving), func(a netip.Addr) bool { return sdk.FamilyOf(a) != family })
		other := func(ep sdk.Endpoint) bool { return sdk.FamilyOf(ep.Addr.Addr()) != family }
		s.Cluster, s.Local = slices.DeleteFunc(slices.Clone(b.Cluster), other), slices.DeleteFunc(slices.Clone(b.Local), other)
		s.Frontends = nil
		some := len(s.Serving)+len(s.Cluster)+len(s.Local) > 0
		for _, f := range b.Frontends {
			some = some || sdk.FamilyOf(f.Addr.Addr()) == family
			if !f.Addr.Addr().IsValid() {
				f.Addr = netip.AddrPortFrom(every, f.Addr.Port())
			}
			if sdk.FamilyOf(f.Addr.Addr()) == family {
				s.Frontends = append(s.Frontends, f)
			}
		}
		if some {
			s.Normalize()
			all = append(all, s)
		}
	}
	return all
}

// add parses a line below the Service's name.
func (b *block) add(l line) {
	if len(l.words) < 2 {
		panic(l.expected("a word and its value"))
	}
	value := l.words[1]
	switch l.words[0] {
	case "cluster-ip", "node-port", "external-ip", "load-balancer":
		b.frontend(l)
	case "endpoint":
		b.endpoint(l)
	case "serving":
		b.Serving = append(b.Serving, l.addr(value))
	case "affinity":
		if b.Affinity = convert(l, value, "a time such as 3h", time.ParseDuration); b.Affinity <= 0 {
			panic(l.expected("a time such as 3h where %q stands", value))
		}
	case "health-port":
		b.HealthPort = l.port(value)
	default:
		panic(l.expected("cluster-ip, node-port, external-ip, load-balancer, endpoint, serving, affinity or health-port"))
	}
}

// frontend adds a frontend with the policy and the source ranges in the words after its address:
// "local", and "from" with ranges. A node port may have no address, for all addresses.
func (b *block) frontend(l line) {
	f, rest := sdk.Frontend{Kind: sdk.ClusterIP, Policy: sdk.Cluster}, l.words[2:]
	for f.Kind.String() != l.words[0] {
		f.Kind++
	}
	if f.Kind == sdk.NodePort && !strings.Contains(l.words[1], ":") {
		f.Addr = netip.AddrPortFrom(netip.Addr{}, l.port(l.words[1]))
	} else {
		f.Addr = l.addrPort(l.words[1])
	}
	if len(rest) > 0 && rest[0] == "local" {
		f.Policy, rest = sdk.Local, rest[1:]
	}
	switch {
	case len(rest) > 1 && rest[0] == "from":
		f.Sources = l.prefixes(rest[1:])
	case len(rest) > 0:
		panic(l.expected("nothing, local, or from and ranges behind the address"))
	}
	b.Frontends = append(b.Frontends, f)
}

// endpoint parses "endpoint ADDR [here] [cluster-only|local-only]". By default, an endpoint
// with "here" is in both lists, and any other in Cluster only.
func (b *block) endpoint(l line) {
	ep, rest := sdk.Endpoint{Addr: l.addrPort(l.words[1])}, l.words[2:]
	if len(rest) > 0 && rest[0] == "here" {
		ep.OnNode, rest = true, rest[1:]
	}
	cluster, local := true, ep.OnNode
	switch {
	case len(rest) == 0:
	case len(rest) == 1 && rest[0] == "cluster-only":
		local = false
	case len(rest) == 1 && rest[0] == "local-only":
		cluster, local = false, true
	default:
		panic(l.expected("here, cluster-only or local-only behind the address"))
	}
	if cluster {
		b.Cluster = append(b.Cluster, ep)
	}
	if local {
		b.Local = append(b.Local, ep)
	}
}

// parsePacket parses a line such as
//
//	10.180.0.9 > 172.30.0.41:80 tcp = 10.180.0.1:8080 10.180.1.1:8080 masq
//
// and checks it against the rule.
func parsePacket(l line, node sdk.Node, services []sdk.Service) Packet {
	p := Packet{Line: l.number, Text: strings.Join(l.words, " "), Protocol: sdk.TCP}
	way, want, ok := strings.Cut(p.Text, " = ")
	words := strings.Fields(way)
	if !ok || len(words) < 3 || len(words) > 4 || words[1] != ">" {
		panic(l.expected("caller > address:port [udp|sctp] = endpoints [masq], reject, drop or unserved"))
	}
	if len(words) == 4 {
		p.Protocol = l.protocol(words[3])
	}
	p.ends(l, words[0], words[2], node)
	p.Want = parseOutcome(l, strings.Fields(want))
	if svc, f, ok := Find(slices.Values(services), node, p.To, p.Protocol); ok {
		p.Service, p.Frontend = svc.Name, f
	}
	if rule := Where(slices.Values(services), node, p.From, p.To, p.Protocol); !p.Want.Equal(rule) {
		panic(l.expected("what the rule gives, which is %q", rule))
	}
	return p
}

// ends parses the caller and the destination. The word node is the node's first address in the
// family of the other end; node6 is its first IPv6 address.
func (p *Packet) ends(l line, caller, to string, node sdk.Node) {
	host, port, named := strings.Cut(to, ":")
	if named = named && (host == "node" || host == "node6"); !named {
		p.To = l.addrPort(to)
	}
	family := sdk.IPv4
	if host == "node6" || strings.Contains(caller, ":") || p.To.Addr().Is6() {
		family = sdk.IPv6
	}
	if named {
		p.To = netip.AddrPortFrom(first(node, family), l.port(port))
	}
	p.caller(l, caller, family, node)
	if sdk.FamilyOf(p.From.Addr) != family || sdk.FamilyOf(p.To.Addr()) != family {
		panic(l.expected("two addresses of one family"))
	}
}

// caller parses an address, "node", "ADDR@node" (the node with another of its addresses) or
// "ADDR@INTERFACE".
func (p *Packet) caller(l line, word string, family sdk.Family, node sdk.Node) {
	if word == "node" {
		p.From = sdk.Caller{Addr: first(node, family), From: sdk.OnNode}
		return
	}
	word, where, _ := strings.Cut(word, "@")
	p.From.Addr = l.addr(word)
	if where == "node" || slices.Contains(node.Addrs, p.From.Addr) {
		p.From.From = sdk.OnNode
		return
	}
	if node.Pods.Contains(p.From.Addr, where) {
		p.From.From = sdk.OnPod
	}
	p.Interface = where
}

func first(node sdk.Node, family sdk.Family) netip.Addr {
	for _, addr := range node.Addrs {
		if sdk.FamilyOf(addr) == family {
			return addr
		}
	}
	return netip.Addr{}
}

func parseOutcome(l line, words []string) Outcome {
	switch strings.Join(words, " ") {
	case "unserved":
		return Outcome{Unserved: true}
	case "reject":
		return Outcome{Verdict: sdk.Reject}
	case "drop":
		return Outcome{Verdict: sdk.Drop}
	}
	o := Outcome{Verdict: sdk.Forward}
	for i, word := range words {
		if word == "masq" && i > 0 && i == len(words)-1 {
			o.Masquerade = true
			break
		}
		word, self := strings.CutSuffix(word, "(masq)")
		ep := l.addrPort(word)
		o.Endpoints = append(o.Endpoints, ep)
		if self {
			o.Hairpin = append(o.Hairpin, ep)
		}
	}
	if len(o.Endpoints) == 0 {
		panic(l.expected("endpoints, reject, drop or unserved behind ="))
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	slices.SortFunc(o.Hairpin, netip.AddrPort.Compare)
	return o
}
