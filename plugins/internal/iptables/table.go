// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
)

// An ID names a chain: its table and its name.
type ID struct{ Table, Chain string }

// String reads as in iptables' own messages.
func (id ID) String() string { return id.Table + " " + id.Chain }

// Tables are chains with their rules, as iptables-save shows them. A chain
// without rules is there, with none.
type Tables map[ID][]Rule

// Read parses what iptables-save prints. Rule counters are left out.
func Read(from io.Reader) (Tables, error) {
	r := reader{tables: make(Tables)}
	if _, err := io.Copy(&r, from); err != nil {
		return nil, err
	}
	return r.end()
}

// A reader parses what is written to it, so that tables need not be held twice, as
// text and as rules.
type reader struct {
	tables Tables
	each   func()      // if not nil, called for each part
	only   []string    // if not nil, the tables that are wanted
	drops  map[ID]bool // if not nil, takes the kernel's own chains that drop what their rules let pass
	table  string
	other  bool   // the present table is not
	rest   []byte // the beginning of a line
	lines  int

	unreadable []string // the tables that the program does not print
}

func (r *reader) Write(part []byte) (int, error) {
	if r.each != nil {
		r.each()
	}
	size := len(part)
	for {
		line, behind, whole := bytes.Cut(part, []byte("\n"))
		if !whole {
			r.rest = append(r.rest, line...)
			return size, nil
		}
		if err := r.line(append(r.rest, line...)); err != nil {
			return 0, err
		}
		r.rest, part = r.rest[:0], behind
	}
}

func (r *reader) line(line []byte) error {
	r.lines++
	line = bytes.TrimSpace(line)
	if name, found := bytes.CutSuffix(line, []byte("' is incompatible, use 'nft' tool.")); found {
		r.unreadable = append(r.unreadable, string(name[bytes.IndexByte(name, '`')+1:]))
	}
	if len(line) > 0 && line[0] == '*' {
		r.other = r.only != nil && !slices.Contains(r.only, string(line[1:]))
	}
	if r.other {
		return nil
	}
	if r.drops != nil {
		r.policy(line)
	}
	if err := r.tables.line(&r.table, string(line)); err != nil {
		return fmt.Errorf("read tables: line %d: %w", r.lines, err)
	}
	return nil
}

// policy notes that of a chain to drop: ":FORWARD DROP [0:0]".
func (r *reader) policy(line []byte) {
	if words := bytes.Fields(line); len(words) > 1 && words[0][0] == ':' && string(words[1]) == "DROP" {
		r.drops[ID{r.table, string(words[0][1:])}] = true
	}
}

// end is all that was read.
func (r *reader) end() (Tables, error) {
	if err := r.line(r.rest); err != nil {
		return nil, err
	}
	return r.tables, nil
}

func (t Tables) line(table *string, line string) error {
	switch {
	case line == "" || line[0] == '#' || line == "COMMIT":
	case line[0] == '*':
		*table = line[1:]
	case line[0] == ':':
		name, _, _ := strings.Cut(line[1:], " ")
		id := ID{*table, name}
		t[id] = append(t[id], []Rule{}...)
	default:
		if line[0] == '[' { // counters, when asked for
			_, line, _ = strings.Cut(line, " ")
		}
		verb, rest, _ := strings.Cut(line, " ")
		chain, rule, _ := strings.Cut(rest, " ")
		if verb != "-A" || chain == "" {
			return fmt.Errorf("%q is no rule", line)
		}
		id := ID{*table, chain}
		t[id] = append(t[id], asWritten(rule))
	}
	return nil
}

// asWritten is a rule that a program printed, as people would write it: some print two
// spaces before the name of an account.
func asWritten(rule string) Rule {
	before, after, ok := strings.Cut(rule, " --nfacct-name  ")
	if !ok || strings.Contains(before, `"`) { // that is a comment
		return Rule(rule)
	}
	return Rule(before + " --nfacct-name " + after)
}

// Unread stands for rules that were not read, because the program cannot print them.
const Unread Rule = "# not read"

// unsure begins what stands for a jump of which the program does not say whether it is there; why follows.
const unsure = "# not known: "

// Unsure returns why it is not known which of the listed jumps chain id has; empty: it is known.
func (t Tables) Unsure(id ID) string {
	for _, r := range t[id] {
		if why, found := strings.CutPrefix(string(r), unsure); found {
			return fmt.Sprintf("it is not known whether our jumps stand in %s, and nothing is written there: %s", id, why)
		}
	}
	return ""
}

// WasRead returns an error unless the rules of all chains that ours names were read.
func (t Tables) WasRead(ours func(ID) bool) error {
	for id := range t {
		if ours(id) && t.Has(id, Unread) {
			return fmt.Errorf("read %s: table %s: %w", id, id.Table, ErrUnreadable)
		}
	}
	return nil
}

// Has reports whether chain id has rule.
func (t Tables) Has(id ID, rule Rule) bool { return slices.Contains(t[id], rule) }

// Hash makes of text a part of a chain's name: always the same, 16 letters and
// digits, as kube-proxy does it.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// Commits counts what this process has committed to nf_tables by the programs of iptables, in all tables and
// families. The zero value is ready; it is safe for concurrent use.
type Commits struct{ n atomic.Uint32 }

// A Generation is another one when tables have been changed: with nft always, with legacy
// when one has another size. To ask for it costs the same however big they are.
type Generation struct {
	generation uint32
	sizes      [3]Size
}

// Size is how big the kernel says that one of legacy's tables is. A process that changes
// a table mostly changes its size.
type Size struct{ Rules, Bytes uint32 }
