// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A test is one condition of a rule.
type test func(*ruleWalk) bool

// An action is a target of a rule with its arguments.
type action struct {
	verb  string // a built-in target, "-j" or "-g" to a chain, or "" for none
	to    string // the chain, the destination of DNAT, or the set
	parts string // the parts of a packet to look up in the set
	bits  [2]uint32
}

// A clause is a parsed rule.
type clause struct {
	tests []test
	do    action
}

// A parser parses a rule's words from left to right. Unknown words are an error: a tracer that guesses proves
// nothing.
type parser struct {
	words  []string
	not    bool
	recent recent
	clause
}

// parse parses a rule as far as it can. The unknown rest may keep packets from matching. So a packet that
// matches everything before it has an unknown fate, unless the target decides nothing.
func parse(words []string) clause {
	p := parser{words: words}
	for len(p.words) > 0 {
		if err := p.option(p.next()); err != nil {
			if i := slices.Index(words, "-j"); i >= 0 && i+1 < len(words) && slices.Contains(idle, words[i+1]) {
				err = nil
			}
			p.tests = append(p.tests, func(w *ruleWalk) bool { w.failed = err; return false })
			return p.clause
		}
	}
	if p.recent.name != "" {
		p.tests = append(p.tests, p.recent.test)
	}
	return p.clause
}

func (p *parser) next() string {
	if len(p.words) == 0 {
		return ""
	}
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

// addTest adds a test, negated if "!" came before it.
func (p *parser) addTest(t test) error {
	if p.not {
		p.not = false
		inner := t
		t = func(w *ruleWalk) bool { return !inner(w) }
	}
	p.tests = append(p.tests, t)
	return nil
}

func (p *parser) option(name string) error {
	switch name {
	case "!":
		p.not = true
		return nil
	case "-s", "-d", "--ctorigdst":
		return p.address(name)
	case "-i", "-o":
		return p.device(name)
	case "-p":
		proto := p.next()
		return p.addTest(func(w *ruleWalk) bool { return w.packet.Protocol == proto })
	case "-m":
		match := p.next()
		if match == "socket" { // as in the rules of our relay, which has the socket when it traces a packet
			return known("option of the match socket", p.next(), "--nowildcard")
		}
		return known("match", match, "comment", "conntrack", "mark", "addrtype", "statistic", "recent", "set", "tcp", "udp", "sctp", "multiport", "state", "nfacct")
	case "--comment", "--nfacct-name":
		p.next()
		return nil
	case "--dport", "--sport", "--dports", "--sports":
		return p.port(name)
	case "--tcp-flags":
		mask, flags := strings.Split(p.next(), ","), p.next()
		return p.addTest(func(*ruleWalk) bool { // the first packet has only SYN
			return flags == "SYN" && slices.Contains(mask, "SYN") || flags == "NONE" && !slices.Contains(mask, "SYN")
		})
	case "--ctstate", "--state":
		states := strings.Split(p.next(), ",")
		return p.addTest(func(w *ruleWalk) bool {
			return slices.ContainsFunc(w.states(), func(s string) bool { return slices.Contains(states, s) })
		})
	case "--mark":
		bits, err := ParseMark(p.next())
		return cmp.Or(err, p.addTest(func(w *ruleWalk) bool { return w.path.Mark&bits[1] == bits[0] }))
	case "--src-type", "--dst-type":
		return p.addressType(name)
	case "--match-set":
		name, parts := p.next(), p.next()
		return p.addTest(func(w *ruleWalk) bool { return w.member(name, parts) })
	case "--mode":
		return known("mode", p.next(), "random")
	case "--probability":
		share, err := strconv.ParseFloat(p.next(), 64)
		return cmp.Or(err, p.addTest(func(w *ruleWalk) bool { return w.random(share) }))
	case "-j", "-g":
		return p.target(name)
	}
	return p.recently(name)
}

func (p *parser) address(name string) error {
	prefix, err := netip.ParsePrefix(p.next())
	if err != nil { // the mask has gaps
		return err
	}
	return p.addTest(func(w *ruleWalk) bool {
		switch name {
		case "-s":
			return prefix.Contains(w.packet.From.Addr())
		case "--ctorigdst":
			return !w.packet.Untracked && prefix.Contains(w.packet.To.Addr()) // the destination before translation
		}
		return prefix.Contains(w.to.Addr())
	})
}

func (p *parser) device(name string) error {
	device := p.next()
	prefix, some := strings.CutSuffix(device, "+")
	return p.addTest(func(w *ruleWalk) bool {
		have := w.packet.In
		if name == "-o" {
			have = w.packet.Out
		}
		return have == device || some && strings.HasPrefix(have, prefix)
	})
}

func (p *parser) port(name string) error {
	var ranges [][2]uint64
	for ports := range strings.SplitSeq(p.next(), ",") {
		low, high, isRange := strings.Cut(ports, ":")
		if !isRange {
			high = low
		}
		from, err := strconv.ParseUint(low, 10, 16)
		to, err2 := strconv.ParseUint(high, 10, 16)
		if cmp.Or(err, err2) != nil {
			return cmp.Or(err, err2)
		}
		ranges = append(ranges, [2]uint64{from, to})
	}
	return p.addTest(func(w *ruleWalk) bool {
		port := uint64(w.to.Port())
		if strings.HasPrefix(name, "--s") {
			if port = uint64(w.packet.From.Port()); port == 0 {
				w.failed = errors.New("it depends on the client's port, which is unknown")
			}
		}
		return slices.ContainsFunc(ranges, func(r [2]uint64) bool { return r[0] <= port && port <= r[1] })
	})
}

func (p *parser) addressType(name string) error {
	if err := known("address type", p.next(), "LOCAL"); err != nil {
		return err
	}
	return p.addTest(func(w *ruleWalk) bool {
		if name == "--src-type" {
			return w.packet.Local(w.packet.From.Addr())
		}
		return w.packet.Local(w.to.Addr())
	})
}

// A recent is the match recent: it checks whether a list has the source, or adds the source.
type recent struct {
	name string
	set  bool
}

func (p *parser) recently(name string) error {
	switch name {
	case "--rcheck", "--reap", "--rsource":
	case "--set":
		p.recent.set = true
	case "--seconds", "--mask":
		p.next()
	case "--name":
		p.recent.name = p.next()
	default:
		return fmt.Errorf("%q is not supported", name)
	}
	return nil
}

func (r recent) test(w *ruleWalk) bool {
	if r.set {
		w.path.Remembered = append(w.path.Remembered, r.name)
		return true
	}
	if w.rules.Forgets {
		return w.random(0.5)
	}
	return w.packet.Seen[r.name]
}

// idle are the targets that do not decide the packet's fate.
var idle = []string{"LOG", "NFLOG", "TCPMSS", "CHECKSUM", "TRACE"}

func (p *parser) target(how string) error {
	name := p.next()
	p.do = action{verb: name}
	if slices.Contains(idle, name) {
		p.do.verb, p.words = "", nil
		return nil
	}
	switch name {
	case "ACCEPT", "DROP", "RETURN":
	case "REJECT":
		p.skip("--reject-with")
	case "MASQUERADE":
		if len(p.words) > 0 && p.words[0] == "--random-fully" {
			p.next()
		}
	case "DNAT":
		if p.next() != "--to-destination" {
			return errors.New("DNAT is supported only with --to-destination")
		}
		p.do.to = p.next()
		_, err := netip.ParseAddrPort(p.do.to)
		return err
	case "REDIRECT":
		if p.next() != "--to-ports" {
			return errors.New("REDIRECT is supported only with --to-ports")
		}
		p.do.to = p.next()
		_, err := strconv.ParseUint(p.do.to, 10, 16)
		return err
	case "MARK":
		if p.next() != "--set-xmark" {
			return errors.New("MARK is supported only with --set-xmark")
		}
		bits, err := ParseMark(p.next())
		p.do.bits = bits
		return err
	case "SET":
		return p.markBySet()
	default:
		p.do = action{verb: how, to: name}
	}
	return nil
}

// markBySet parses the target SET, which marks a packet with the mark of its member in a set.
func (p *parser) markBySet() error {
	if p.next() != "--map-set" {
		return errors.New("SET is supported only with --map-set")
	}
	p.do.to, p.do.parts = p.next(), p.next()
	if p.next() != "--map-mark" {
		return errors.New("--map-set is supported only with --map-mark")
	}
	return nil
}

// skip ignores an option that does not matter here, with its value.
func (p *parser) skip(name string) {
	if len(p.words) > 1 && p.words[0] == name {
		p.words = p.words[2:]
	}
}

// ParseMark parses a mark and its mask: "0x4000/0x4000".
func ParseMark(s string) (bits [2]uint32, err error) {
	value, mask, ok := strings.Cut(s, "/")
	if !ok {
		mask = "0xffffffff"
	}
	v, err := strconv.ParseUint(value, 0, 32)
	m, err2 := strconv.ParseUint(mask, 0, 32)
	return [2]uint32{uint32(v), uint32(m)}, cmp.Or(err, err2)
}

func known(what, name string, names ...string) error {
	if !slices.Contains(names, name) {
		return fmt.Errorf("the %s %q is not supported", what, name)
	}
	return nil
}
