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

// Text is a word from outside. In a rule it is quoted if needed, so that it is always one word.
type Text string

// Words composes a Rule. Strings are added as they are: use them only for constant text. An address becomes a
// prefix of its full length, and a Text is quoted. Prefixes, addresses with ports, and numbers are printed.
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

// longest is the maximum length of a comment, in bytes, that all versions of the match accept.
const longest = 200

// quote quotes s as iptables-save does: only if it has special characters. It replaces characters that cannot
// be in a line of a script by question marks, and truncates text that is too long for a comment.
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

// All yields the words of the rule with quotes and escapes resolved. It ends at a quote that is not closed.
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

// cut splits off the first word. It is not ok if there is none or if a quote is not closed.
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

// Fields splits a rule into its words.
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

// Join returns rules as one text, a line each. Chains with equal texts have equal rules.
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

// Split is the inverse of Join.
func Split(text string) []Rule {
	rules := make([]Rule, 0, strings.Count(text, "\n"))
	for line := range strings.Lines(text) {
		rules = append(rules, Rule(strings.TrimSuffix(line, "\n")))
	}
	return rules
}

// Target returns the chain or target after -j or -g, or "" if the rule only counts.
func (r Rule) Target() string { return r.argument("-j", "-g") }

// Comment returns the rule's comment, or "".
func (r Rule) Comment() string {
	if !strings.Contains(string(r), "--comment ") {
		return ""
	}
	return r.argument("--comment")
}

// After returns the rest of the rule after word and its argument, or "".
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

// argument returns the argument of the first of these options in the rule.
func (r Rule) argument(words ...string) string {
	next := false
	for word := range r.All() {
		if next {
			return word
		}
		next = slices.Contains(words, word)
	}
	return ""
}

// Interface returns the argument for the interface called name. A name that ends in "+" matches all names with
// this prefix.
func Interface(name string) string {
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`"'\`, r) }) {
		return quote(name)
	}
	return name
}

// Share returns the argument for the probability part/whole as the kernel stores it, a fraction of 2^31.
func Share(part, whole int) string {
	const one = 1 << 31
	kept := (int64(one)*int64(part)*2 + int64(whole)) / (2 * int64(whole)) // rounded to nearest
	return strconv.FormatFloat(float64(kept)/one, 'f', 11, 64)
}
