// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/pointsman/pointsman/sdk"
)

// Parse reads a scenario. An error names the file and the line, and says what
// was expected there. A packet whose outcome is not the one that sdk's own rule
// gives is an error too: the files and the rule cannot disagree.
func Parse(name string, data []byte) (Scenario, error) {
	s := Scenario{Name: strings.TrimSuffix(path.Base(name), ".txtar")}
	archive := txtar.Parse(data)
	s.Doc = strings.TrimSpace(string(archive.Comment))
	if s.Doc == "" {
		return s, fmt.Errorf("%s:1: expected a sentence that says what the scenario shows", name)
	}
	sections := map[string][]line{}
	at := 1 + bytes.Count(archive.Comment, []byte("\n"))
	for _, f := range archive.Files {
		if !slices.Contains(sectionNames, f.Name) || sections[f.Name] != nil {
			return s, fmt.Errorf("%s:%d: expected one each of the sections %s", name, at, strings.Join(sectionNames, ", "))
		}
		sections[f.Name] = split(f.Data, at+1)
		if f.Name == "manifests" {
			s.Manifests = f.Data
		}
		at += 1 + bytes.Count(f.Data, []byte("\n"))
	}
	if err := s.parse(sections); err != nil {
		var where *lineError
		if errors.As(err, &where) {
			return s, fmt.Errorf("%s:%d: %s", name, where.line, where.what)
		}
		return s, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

var sectionNames = []string{"node", "services", "packets", "manifests"}

func (s *Scenario) parse(sections map[string][]line) error {
	var err error
	if s.Node, err = parseNode(sections["node"]); err != nil {
		return err
	}
	if s.Services, err = parseServices(sections["services"]); err != nil {
		return err
	}
	if s.Packets, err = parsePackets(sections["packets"], s.Node, s.Services); err != nil {
		return err
	}
	if len(s.Packets) == 0 {
		return errors.New("expected a section -- packets -- with one packet or more")
	}
	s.Needs = needs(s.Services)
	return nil
}

// A line is one that says something: neither empty nor a comment.
type line struct {
	number   int
	indented bool
	words    []string
	text     string
}

// split takes the comments ("# …") off. It never returns nil.
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

// A lineError is what is wrong with one line.
type lineError struct {
	line int
	what string
}

func (e *lineError) Error() string { return e.what }

// expected says what should have stood on l.
func (l line) expected(format string, args ...any) error {
	return &lineError{l.number, fmt.Sprintf("expected "+format, args...) + fmt.Sprintf("; found %q", l.text)}
}

func (l line) addr(word string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(word)
	if err != nil {
		return addr, l.expected("an IP address where %q stands", word)
	}
	return addr, nil
}

func (l line) addrPort(word string) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(word)
	if err != nil || addr.Port() == 0 {
		return addr, l.expected("address:port where %q stands", word)
	}
	return addr, nil
}

func (l line) prefixes(words []string) ([]netip.Prefix, error) {
	var list []netip.Prefix
	for _, word := range words {
		p, err := netip.ParsePrefix(word)
		if err != nil || p != p.Masked() {
			return nil, l.expected("a range such as 10.0.0.0/8 where %q stands", word)
		}
		list = append(list, p)
	}
	return list, nil
}

func (l line) protocol(word string) (sdk.Protocol, error) {
	for _, p := range []sdk.Protocol{sdk.TCP, sdk.UDP, sdk.SCTP} {
		if p.String() == word {
			return p, nil
		}
	}
	return 0, l.expected("tcp, udp or sctp where %q stands", word)
}

// parsePackets reads lines such as
//
//	10.180.0.9 > 172.30.0.41:80 tcp = 10.180.0.1:8080 10.180.1.1:8080 masq
//
// and holds each to the rule.
func parsePackets(lines []line, node sdk.Node, services []sdk.Service) ([]Packet, error) {
	var all []Packet
	for _, l := range lines {
		p, err := parsePacket(l, node)
		if err != nil {
			return nil, err
		}
		svc, f, ok := Find(slices.Values(services), node, p.To, p.Protocol)
		if ok {
			p.Service, p.Frontend = svc.Name, f
		}
		rule := Where(slices.Values(services), node, p.From, p.To, p.Protocol)
		if !p.Want.Equal(rule) {
			return nil, l.expected("what the rule gives, which is %q", rule)
		}
		all = append(all, p)
	}
	return all, nil
}

func parsePacket(l line, node sdk.Node) (Packet, error) {
	p := Packet{Line: l.number, Text: strings.Join(l.words, " "), Protocol: sdk.TCP}
	way, want, ok := strings.Cut(p.Text, " = ")
	words := strings.Fields(way)
	if !ok || len(words) < 3 || len(words) > 4 || words[1] != ">" {
		return p, l.expected("caller > address:port [udp|sctp] = endpoints [masq], reject, drop or unserved")
	}
	var err error
	if len(words) == 4 {
		if p.Protocol, err = l.protocol(words[3]); err != nil {
			return p, err
		}
	}
	if err := p.ends(l, words[0], words[2], node); err != nil {
		return p, err
	}
	p.Want, err = parseOutcome(l, strings.Fields(want))
	return p, err
}

// ends reads caller and address. The word node is the node's first address of
// the family that the other one has; node6 is its first of IPv6.
func (p *Packet) ends(l line, caller, to string, node sdk.Node) error {
	host, port, named := strings.Cut(to, ":")
	if named = named && (host == "node" || host == "node6"); !named {
		addr, err := l.addrPort(to)
		if err != nil {
			return err
		}
		p.To = addr
	}
	family := sdk.IPv4
	if host == "node6" || strings.Contains(caller, ":") || p.To.Addr().Is6() {
		family = sdk.IPv6
	}
	if named {
		var number uint16
		if err := l.port(port, &number); err != nil {
			return err
		}
		p.To = netip.AddrPortFrom(first(node, family), number)
	}
	if err := p.caller(l, caller, family, node); err != nil {
		return err
	}
	if sdk.FamilyOf(p.From.Addr) != family || sdk.FamilyOf(p.To.Addr()) != family {
		return l.expected("two addresses of one family")
	}
	return nil
}

// caller reads an address, "node", "ADDR@node" (the node by another of its
// names) or "ADDR@INTERFACE".
func (p *Packet) caller(l line, word string, family sdk.Family, node sdk.Node) error {
	if word == "node" {
		p.From = sdk.Caller{Addr: first(node, family), From: sdk.OnNode}
		return nil
	}
	word, where, _ := strings.Cut(word, "@")
	addr, err := l.addr(word)
	if err != nil {
		return err
	}
	p.From.Addr = addr
	switch {
	case where == "node" || slices.Contains(node.Addrs, addr):
		p.From.From = sdk.OnNode
		return nil
	case node.Pods.Contains(addr, where):
		p.From.From = sdk.OnPod
	}
	p.Interface = where
	return nil
}

func first(node sdk.Node, family sdk.Family) netip.Addr {
	for _, addr := range node.Addrs {
		if sdk.FamilyOf(addr) == family {
			return addr
		}
	}
	return netip.Addr{}
}

func parseOutcome(l line, words []string) (Outcome, error) {
	if len(words) == 1 {
		switch words[0] {
		case "unserved":
			return Outcome{Unserved: true}, nil
		case "reject":
			return Outcome{Verdict: sdk.Reject}, nil
		case "drop":
			return Outcome{Verdict: sdk.Drop}, nil
		}
	}
	o := Outcome{Verdict: sdk.Forward}
	for i, word := range words {
		if word == "masq" && i > 0 && i == len(words)-1 {
			o.Masquerade = true
			break
		}
		word, self := strings.CutSuffix(word, "(masq)")
		ep, err := l.addrPort(word)
		if err != nil {
			return o, err
		}
		o.Endpoints = append(o.Endpoints, ep)
		if self {
			o.Hairpin = append(o.Hairpin, ep)
		}
	}
	slices.SortFunc(o.Endpoints, netip.AddrPort.Compare)
	slices.SortFunc(o.Hairpin, netip.AddrPort.Compare)
	if len(o.Endpoints) == 0 {
		return o, l.expected("endpoints, reject, drop or unserved behind =")
	}
	return o, nil
}
