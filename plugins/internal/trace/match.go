// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// A test is one condition of a rule.
type test func(*walk) bool

// An action is what a rule does: one of the verbs, with what it needs.
type action struct {
	verb  string // a target of the kernel's own, "jump", "goto", or "" for nothing
	to    string // the chain, or where DNAT sends, or the set
	parts string // which parts of a packet are looked up in the set
	bits  [2]uint32
}

// A clause is a rule that has been understood.
type clause struct {
	tests []test
	do    action
}

// A parser reads a rule's words from left to right. What it does not know is an
// error: a tracer that guesses proves nothing.
type parser struct {
	words  []string
	not    bool
	recent recent
	clause
}

// parse understands a rule as far as it can. Of the rest it is only known that it may keep packets
// from matching: those that match all before it are not understood.
func parse(words []string) clause {
	p := parser{words: words}
	for len(p.words) > 0 {
		if err := p.option(p.next()); err != nil {
			p.tests = append(p.tests, func(w *walk) bool { w.failed = err; return false })
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

// when adds a test, turned round if "!" stood before it.
func (p *parser) when(t test) error {
	if p.not {
		p.not = false
		inner := t
		t = func(w *walk) bool { return !inner(w) }
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
		return p.when(func(w *walk) bool { return w.packet.Protocol == proto })
	case "-m":
		if len(p.words) > 0 && p.words[0] == "socket" {
			return p.socket()
		}
		return known("match", p.next(), "comment", "conntrack", "mark", "addrtype", "statistic", "recent", "set", "tcp", "udp", "sctp", "multiport", "state", "nfacct")
	case "--comment", "--nfacct-name":
		p.next()
		return nil
	case "--dport", "--sport", "--dports", "--sports":
		return p.port(name)
	case "--tcp-flags":
		mask, flags := strings.Split(p.next(), ","), p.next()
		return p.when(func(*walk) bool { // the first packet has SYN alone
			return flags == "SYN" && slices.Contains(mask, "SYN") || flags == "NONE" && !slices.Contains(mask, "SYN")
		})
	case "--ctstate", "--state":
		states := strings.Split(p.next(), ",")
		return p.when(func(w *walk) bool {
			return w.tracked() && slices.ContainsFunc(w.states(), func(s string) bool { return slices.Contains(states, s) })
		})
	case "--mark":
		bits, err := masked(p.next())
		return either(err, p.when(func(w *walk) bool { return w.mark&bits[1] == bits[0] }))
	case "--src-type", "--dst-type":
		return p.addressType(name)
	case "--match-set":
		return p.set()
	case "--mode":
		return known("mode", p.next(), "random")
	case "--probability":
		share, err := strconv.ParseFloat(p.next(), 64)
		return either(err, p.when(func(w *walk) bool { return w.random(share) }))
	case "-j", "-g":
		return p.target(name)
	}
	return p.recently(name)
}

func (p *parser) address(name string) error {
	prefix, err := netip.ParsePrefix(p.next())
	if err != nil { // a mask with gaps
		return err
	}
	return p.when(func(w *walk) bool {
		switch name {
		case "-s":
			return prefix.Contains(w.packet.From.Addr())
		case "--ctorigdst":
			return w.tracked() && prefix.Contains(w.packet.To.Addr()) // as it was sent
		}
		return prefix.Contains(w.to.Addr())
	})
}

func (p *parser) device(name string) error {
	device := p.next()
	prefix, some := strings.CutSuffix(device, "+")
	return p.when(func(w *walk) bool {
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
		if either(err, err2) != nil {
			return either(err, err2)
		}
		ranges = append(ranges, [2]uint64{from, to})
	}
	return p.when(func(w *walk) bool {
		port := uint64(w.to.Port())
		if strings.HasPrefix(name, "--s") {
			if port = uint64(w.packet.From.Port()); port == 0 {
				w.failed = errors.New("it asks for the caller's port, which is not known")
			}
		}
		return slices.ContainsFunc(ranges, func(r [2]uint64) bool { return r[0] <= port && port <= r[1] })
	})
}

func (p *parser) addressType(name string) error {
	if err := known("address type", p.next(), "LOCAL"); err != nil {
		return err
	}
	return p.when(func(w *walk) bool {
		if name == "--src-type" {
			return w.packet.Local(w.packet.From.Addr())
		}
		return w.packet.Local(w.to.Addr())
	})
}

// A recent is the match of that name: whether a list has the sender, or that it
// shall have it from now on.
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
		return fmt.Errorf("the tracer does not know %q", name)
	}
	return nil
}

func (r recent) test(w *walk) bool {
	if r.set {
		w.path.Remembered = append(w.path.Remembered, r.name)
		return true
	}
	if w.tracer.Recent == nil {
		return w.packet.Seen[r.name]
	}
	return w.tracer.Recent(r.name, w.packet.From.Addr()) && w.random(0.5)
}

func (p *parser) target(how string) error {
	name := p.next()
	p.do = action{verb: name}
	switch name {
	case "ACCEPT", "DROP", "RETURN":
	case "LOG", "NFLOG", "TCPMSS": // they decide nothing
		p.do.verb, p.words = "", nil
	case "REJECT":
		p.skip("--reject-with")
	case "MASQUERADE":
		if len(p.words) > 0 && p.words[0] == "--random-fully" {
			p.next()
		}
	case "DNAT":
		if p.next() != "--to-destination" {
			return fmt.Errorf("the tracer knows DNAT only with --to-destination")
		}
		p.do.to = p.next()
		_, err := netip.ParseAddrPort(p.do.to)
		return err
	case "REDIRECT":
		if p.next() != "--to-ports" {
			return fmt.Errorf("the tracer knows REDIRECT only with --to-ports")
		}
		p.do.to = p.next()
		_, err := strconv.ParseUint(p.do.to, 10, 16)
		return err
	case "MARK":
		if p.next() != "--set-xmark" {
			return fmt.Errorf("the tracer knows MARK only with --set-xmark")
		}
		bits, err := masked(p.next())
		p.do.bits = bits
		return err
	case "SET":
		return p.markBySet()
	default:
		p.do = action{verb: map[string]string{"-j": "jump", "-g": "goto"}[how], to: name}
	}
	return nil
}

// markBySet is the target that marks a packet as its entry in a set says.
func (p *parser) markBySet() error {
	if p.next() != "--map-set" {
		return fmt.Errorf("the tracer knows SET only with --map-set")
	}
	p.do.to, p.do.parts = p.next(), p.next()
	if p.next() != "--map-mark" {
		return fmt.Errorf("the tracer knows --map-set only with --map-mark")
	}
	return nil
}

// skip passes over an option that does not matter here, and its value.
func (p *parser) skip(name string) {
	if len(p.words) > 1 && p.words[0] == name {
		p.words = p.words[2:]
	}
}

// masked reads "0x4000/0x4000".
func masked(s string) (bits [2]uint32, err error) {
	value, mask, ok := strings.Cut(s, "/")
	if !ok {
		mask = "0xffffffff"
	}
	v, err := strconv.ParseUint(value, 0, 32)
	m, err2 := strconv.ParseUint(mask, 0, 32)
	return [2]uint32{uint32(v), uint32(m)}, either(err, err2)
}

func known(what, name string, names ...string) error {
	if !slices.Contains(names, name) {
		return fmt.Errorf("the tracer does not know the %s %q", what, name)
	}
	return nil
}

func either(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
