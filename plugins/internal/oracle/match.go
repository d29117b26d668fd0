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

	"github.com/pointsman/pointsman/plugins/internal/nftnl"
)

// A test is one condition of a rule.
type test func(*way) bool

// A target executes the target of a rule, and returns its verdict or nil.
type target func(*way) *nftnl.Verdict

// A clause is a parsed rule.
type clause struct {
	tests []test
	do    target // nil if it changes nothing
}

// A parser parses a rule's words from left to right. Unknown words are an error: a tracer that guesses proves
// nothing.
type parser struct {
	words []string
	not   bool
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
			p.tests = append(p.tests, func(w *way) bool { w.failed = err; return false })
			return p.clause
		}
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
		t = func(w *way) bool { return !inner(w) }
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
		return p.addTest(func(w *way) bool { return w.packet.Protocol == proto })
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
		return p.addTest(func(*way) bool { // the first packet has only SYN
			return flags == "SYN" && slices.Contains(mask, "SYN") || flags == "NONE" && !slices.Contains(mask, "SYN")
		})
	case "--ctstate", "--state":
		states := strings.Split(p.next(), ",")
		return p.addTest(func(w *way) bool {
			return slices.ContainsFunc(w.states(), func(s string) bool { return slices.Contains(states, s) })
		})
	case "--mark":
		bits, err := ParseMark(p.next())
		return cmp.Or(err, p.addTest(func(w *way) bool { return w.path.Mark&bits[1] == bits[0] }))
	case "--src-type", "--dst-type":
		return p.addressType(name)
	case "--match-set":
		name, parts := p.next(), p.next()
		return p.addTest(func(w *way) bool { return w.member(name, parts) })
	case "--mode":
		return known("mode", p.next(), "random")
	case "--probability":
		share, err := strconv.ParseFloat(p.next(), 64)
		return cmp.Or(err, p.addTest(func(w *way) bool { return w.random(share) }))
	case "--rcheck":
		return p.addTest(func(w *way) bool { return w.rules.Remembers && w.random(0.5) })
	case "--seconds", "--name", "--mask":
		p.next()
		return nil
	case "--set", "--reap", "--rsource":
		return nil
	case "-j", "-g":
		return p.target(name)
	}
	return fmt.Errorf("%q is not supported", name)
}

func (p *parser) address(name string) error {
	prefix, err := netip.ParsePrefix(p.next())
	if err != nil { // the mask has gaps
		return err
	}
	return p.addTest(func(w *way) bool {
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
	return p.addTest(func(w *way) bool {
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
	return p.addTest(func(w *way) bool {
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
	return p.addTest(func(w *way) bool {
		if name == "--src-type" {
			return w.packet.Local(w.packet.From.Addr())
		}
		return w.packet.Local(w.to.Addr())
	})
}

// idle are the targets that do not decide the packet's fate.
var idle = []string{"LOG", "NFLOG", "TCPMSS", "CHECKSUM", "TRACE"}

// always returns a target with a verdict.
func always(v nftnl.Verdict) target { return func(*way) *nftnl.Verdict { return &v } }

// translate returns a target that translates the destination.
func translate(to func(*way) netip.AddrPort) target {
	return func(w *way) *nftnl.Verdict {
		w.to, w.path.Translated = to(w), true
		return &nftnl.Accept
	}
}

func (p *parser) target(how string) (err error) {
	name := p.next()
	if slices.Contains(idle, name) {
		p.words = nil
		return nil
	}
	switch name {
	case "ACCEPT":
		p.do = always(nftnl.Accept)
	case "DROP":
		p.do = always(nftnl.Drop)
	case "RETURN":
		p.do = always(nftnl.Return)
	case "REJECT":
		p.words = nil // only --reject-with may follow
		p.do = func(w *way) *nftnl.Verdict { w.path.Verdict = Reject; return &nftnl.Drop }
	case "MASQUERADE":
		p.words = nil // --random-fully, or ports
		p.do = func(w *way) *nftnl.Verdict { w.path.Masquerade = true; return &nftnl.Accept }
	case "DNAT":
		var to netip.AddrPort
		to, err = netip.ParseAddrPort(p.value("--to-destination"))
		p.do = translate(func(*way) netip.AddrPort { return to })
	case "REDIRECT":
		var port uint64
		port, err = strconv.ParseUint(p.value("--to-ports"), 10, 16)
		p.do = translate(func(w *way) netip.AddrPort { return w.redirected(uint16(port)) })
	case "MARK":
		var bits [2]uint32
		bits, err = ParseMark(p.value("--set-xmark"))
		p.do = func(w *way) *nftnl.Verdict { w.mark(bits); return nil }
	case "SET": // marks a packet with the mark of its member in a set
		set, parts := p.value("--map-set"), p.next()
		err = known("option of SET", p.next(), "--map-mark")
		p.do = func(w *way) *nftnl.Verdict {
			if w.member(set, parts) {
				var bits [2]uint32
				bits, w.failed = w.rules.Mark(set, parts, w.now())
				w.mark(bits)
			}
			return nil
		}
	default:
		p.do = always(nftnl.Goto(name))
		if how == "-j" {
			p.do = always(nftnl.Jump(name))
		}
	}
	return err
}

// value returns the value of an option that must come next, or "".
func (p *parser) value(option string) string {
	if p.next() != option {
		return ""
	}
	return p.next()
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
