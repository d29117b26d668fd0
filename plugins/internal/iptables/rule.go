// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A Rule is one rule without its chain, as iptables-save prints it:
// "-d 10.0.0.1/32 -p tcp -m tcp --dport 80 -j DROP".
type Rule string

// Text is a word that comes from outside. In a rule it is quoted where it must
// be, and never more than one word.
type Text string

// Words makes a Rule of its words: strings as they stand, which are for text
// written in the program; an address as the prefix of its whole length; a Text
// quoted; prefixes, addresses with ports, and numbers as they print.
func Words(words ...any) Rule {
	text := make([]byte, 0, 128)
	for _, w := range words {
		if more := appendWord(text, w); len(more) > len(text) {
			text = append(more, ' ')
		}
	}
	return Rule(bytes.TrimSuffix(text, []byte(" ")))
}

func appendWord(text []byte, w any) []byte {
	switch w := w.(type) {
	case string:
		return append(text, w...)
	case Rule:
		return append(text, w...)
	case Text:
		return append(text, quote(string(w))...)
	case netip.Addr:
		return netip.PrefixFrom(w, w.BitLen()).AppendTo(text)
	case netip.Prefix:
		return w.Masked().AppendTo(text)
	case netip.AddrPort:
		return w.AppendTo(text)
	case uint16:
		return strconv.AppendUint(text, uint64(w), 10)
	}
	return fmt.Append(text, w)
}

// longest is what the comment match holds in every version, in bytes.
const longest = 200

// quote writes s as iptables-save would: bare when it is plain, else in double
// quotes. What cannot be in a line of a script becomes a question mark, and what
// is too long for a comment is cut.
func quote(s string) string {
	s = strings.Map(printable, s)
	if len(s) > longest {
		s = strings.ToValidUTF8(s[:longest], "")
	}
	if s != "" && strings.Trim(s, plain) == "" {
		return s
	}
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range []byte(s) {
		if c == '"' || c == '\\' || c == '\'' {
			b.WriteByte('\\')
		}
		b.WriteByte(c)
	}
	b.WriteByte('"')
	return b.String()
}

const plain = "_-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func printable(r rune) rune {
	if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
		return '?'
	}
	return r
}

// All are the rule's words, quotes and escapes resolved. They end where a quote is not
// closed.
func (r Rule) All() iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			word, rest, ok := r.cut()
			if !ok || !yield(word) {
				return
			}
			r = rest
		}
	}
}

// cut takes the first word off the rule. It is not ok if there is none, or a quote is not
// closed.
func (r Rule) cut() (word string, rest Rule, ok bool) {
	r = Rule(strings.TrimLeft(string(r), " "))
	end := strings.IndexAny(string(r), ` "`)
	switch {
	case r == "":
		return "", "", false
	case end < 0:
		return string(r), "", true
	case r[end] == ' ':
		return string(r[:end]), r[end:], true
	}
	var b strings.Builder
	open := false
	for i := 0; i < len(r); i++ {
		switch c := r[i]; {
		case c == '\\' && open && i+1 < len(r):
			i++
			b.WriteByte(r[i])
		case c == '"':
			open = !open
		case c == ' ' && !open:
			return b.String(), r[i:], true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", !open
}

// Fields takes a rule apart into its words.
func (r Rule) Fields() ([]string, error) {
	var fields []string
	for rest := Rule(strings.TrimRight(string(r), " ")); rest != ""; {
		word, behind, ok := rest.cut()
		if !ok {
			return nil, fmt.Errorf("rule %q: a quote is not closed", string(r))
		}
		fields, rest = append(fields, word), behind
	}
	return fields, nil
}

// Join is rules as one text, a line each. Two chains say the same when their texts are
// equal.
func Join(rules []Rule) string {
	size := 0
	for _, r := range rules {
		size += len(r) + 1
	}
	var s strings.Builder
	s.Grow(size)
	for _, r := range rules {
		s.WriteString(string(r))
		s.WriteByte('\n')
	}
	return s.String()
}

// Split is the way back from Join.
func Split(text string) []Rule {
	rules := make([]Rule, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		rules = append(rules, Rule(strings.TrimSuffix(line, "\n")))
	}
	return rules
}

// Target is the chain or the action that the rule goes to: what follows -j or -g.
// It is empty when the rule only counts.
func (r Rule) Target() string { return r.behind("-j", "-g") }

// Comment is the text of the rule's comment, or empty.
func (r Rule) Comment() string {
	if !strings.Contains(string(r), "--comment ") {
		return ""
	}
	return r.behind("--comment")
}

// After is what follows the word behind the first one that is word; nothing, if there is none.
func (r Rule) After(word string) Rule {
	for {
		w, rest, ok := r.cut()
		if !ok {
			return ""
		}
		if r = rest; w == word {
			_, rest, _ = rest.cut()
			return rest
		}
	}
}

// behind is the word behind the first that is one of words.
func (r Rule) behind(words ...string) string {
	next := false
	for word := range r.All() {
		if next {
			return word
		}
		next = slices.Contains(words, word)
	}
	return ""
}

// Interface is the word for the interface called name, or for all whose names
// begin with it when it ends in "+".
func Interface(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\`, r) }) {
		return quote(name)
	}
	return name
}

// Share is the word for the chance of part in whole, as the kernel keeps it: a fraction
// of 2^31.
func Share(part, whole int) string {
	const one = 1 << 31
	kept := (int64(one)*int64(part)*2 + int64(whole)) / (2 * int64(whole)) // rounded to nearest
	return strconv.FormatFloat(float64(kept)/one, 'f', 11, 64)
}
