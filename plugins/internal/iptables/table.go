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

// An ID identifies a chain.
type ID struct{ Table, Chain string }

// String returns the form of iptables' own messages.
func (id ID) String() string { return id.Table + " " + id.Chain }

// Tables are chains with their rules, as iptables-save prints them. A chain without rules has an entry.
type Tables map[ID][]Rule

// Read parses the output of iptables-save. It ignores rule counters.
func Read(from io.Reader) (Tables, error) {
	r := reader{tables: make(Tables)}
	if _, err := io.Copy(&r, from); err != nil {
		return nil, err
	}
	return r.end()
}

// A reader parses what is written to it, so that the tables are not in memory twice, as text and as rules.
type reader struct {
	tables Tables
	each   func()      // if not nil, called for each Write
	only   []string    // if not nil, the tables to keep
	drops  map[ID]bool // if not nil, receives the built-in chains with policy DROP
	table  string
	other  bool   // the present table is not in only
	rest   []byte // incomplete line
	lines  int

	unreadable []string // tables that the program cannot print
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

// policy records the policy DROP of a chain: ":FORWARD DROP [0:0]".
func (r *reader) policy(line []byte) {
	if words := bytes.Fields(line); len(words) > 1 && words[0][0] == ':' && string(words[1]) == "DROP" {
		r.drops[ID{r.table, string(words[0][1:])}] = true
	}
}

// end parses the last line and returns the tables.
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
			return fmt.Errorf("%q is not a rule", line)
		}
		id := ID{*table, chain}
		t[id] = append(t[id], asWritten(rule))
	}
	return nil
}

// asWritten returns a printed rule in the form in which it was written: some versions print two spaces before
// the name of an account.
func asWritten(rule string) Rule {
	before, after, ok := strings.Cut(rule, " --nfacct-name  ")
	if !ok || strings.Contains(before, `"`) { // that is a comment
		return Rule(rule)
	}
	return Rule(before + " --nfacct-name " + after)
}

// Unread stands for the rules of a chain that the program cannot print.
const Unread Rule = "# not read"

// unsure is the prefix of the placeholder for a jump if the program cannot say whether it exists. The reason
// follows.
const unsure = "# not known: "

// Unsure returns why it is unknown which of the listed jumps chain id has, or "" if it is known.
func (t Tables) Unsure(id ID) string {
	for _, r := range t[id] {
		if why, found := strings.CutPrefix(string(r), unsure); found {
			return fmt.Sprintf("it is unknown whether our jumps exist in %s, so nothing is written there: %s", id, why)
		}
	}
	return ""
}

// WasRead returns an error unless the rules of all chains reported by ours were read.
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

// Hash returns the part of a chain's name that stands for text: 16 letters and digits, by kube-proxy's
// algorithm.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// Commits counts this process's commits to nf_tables by the iptables programs, in all tables and families. The
// zero value is ready to use. It is safe for concurrent use.
type Commits struct{ n atomic.Uint32 }

// A Generation changes when tables are changed: for nft always, for legacy if a table's size changes. Reading
// it takes the same time for tables of any size.
type Generation struct {
	generation uint32
	sizes      [3]Size
}

// Size is the size of a legacy table. Most changes of a table change its size.
type Size struct{ Rules, Bytes uint32 }
