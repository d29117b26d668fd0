// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"

	"github.com/pointsman/pointsman/sdk"
)

// Parse reads a scenario. An error names the file and the line, and says what
// was expected there. A packet whose outcome is not the one that sdk's own rule
// gives is an error too: the files and the rule cannot disagree.
func Parse(name string, data []byte) (Scenario, error) {
	s := Scenario{Name: scenarioName(name)}
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
