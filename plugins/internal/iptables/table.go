// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// An ID names a chain: its table and its name.
type ID struct{ Table, Chain string }

// String reads as in iptables' own messages.
func (id ID) String() string { return id.Table + " " + id.Chain }

// Tables are chains with their rules, as iptables-save shows them. A chain
// without rules is there, with none.
type Tables map[ID][]Rule

// Read parses what iptables-save prints. Rule counters are left out.
func Read(r io.Reader) (Tables, error) {
	t := make(Tables)
	table := ""
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 64<<10), 1<<20)
	for n := 1; lines.Scan(); n++ {
		if err := t.line(&table, strings.TrimSpace(lines.Text())); err != nil {
			return nil, fmt.Errorf("read tables: line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read tables: %w", err)
	}
	return t, nil
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
		t[id] = append(t[id], Rule(rule))
	}
	return nil
}

// Has reports whether chain id has rule.
func (t Tables) Has(id ID, rule Rule) bool {
	for _, r := range t[id] {
		if r == rule {
			return true
		}
	}
	return false
}
