// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"sort"
	"strings"
)

// A Script is the input of iptables-restore: one or more blocks of changes to a table that take effect
// together. It records errors of its methods and returns them when it is run.
type Script struct {
	text  bytes.Buffer
	lines int
	table string
	marks []mark
	err   error
}

// A mark says that the lines from line on belong to a chain.
type mark struct {
	line int
	id   ID
}

// isChainName reports whether the programs and the kernel accept name for a chain.
func isChainName(name string) bool {
	return len(name) <= 28 && strings.Trim(name, plain+"./:") == "" && !strings.ContainsAny(name[:1], "_-./:")
}

// Empty reports whether the script changes nothing.
func (s *Script) Empty() bool { return s.lines == 0 }

// String returns the input of iptables-restore.
func (s *Script) String() string { return s.text.String() }

// Len is the script's size in bytes.
func (s *Script) Len() int { return s.text.Len() }

// Begin opens a block for table.
func (s *Script) Begin(table string) {
	s.table = table
	s.put(ID{table, ""}, "*"+table)
}

// Commit closes the block, which makes it take effect.
func (s *Script) Commit() { s.put(ID{s.table, ""}, "COMMIT") }

// Chain creates or empties chain and adds rules.
func (s *Script) Chain(chain string, rules []Rule) {
	s.Declare(chain)
	s.Append(chain, rules)
}

// Declare creates chain, or empties it if it exists.
func (s *Script) Declare(chain string) { s.put(ID{s.table, chain}, ":"+chain+" - [0:0]") }

// Append adds rules at the end of chain.
func (s *Script) Append(chain string, rules []Rule) {
	for _, r := range rules {
		s.rule("-A", chain, r)
	}
}

// Insert inserts rule at the beginning of chain.
func (s *Script) Insert(chain string, rule Rule) { s.rule("-I", chain, rule) }

// Delete deletes rule, which must exist, from chain.
func (s *Script) Delete(chain string, rule Rule) { s.rule("-D", chain, rule) }

// Remove removes chain. No rule may lead to it any more.
func (s *Script) Remove(chain string) { s.put(ID{s.table, chain}, "-X "+chain) }

func (s *Script) rule(verb, chain string, r Rule) {
	if r == "" {
		s.put(ID{s.table, chain}, verb, chain)
		return
	}
	s.put(ID{s.table, chain}, verb, chain, string(r))
}

// put adds a line that belongs to chain id, or to no chain if that has no name.
func (s *Script) put(id ID, words ...string) {
	if id.Chain != "" && !isChainName(id.Chain) {
		s.fail(fmt.Errorf("%q is not a chain name", id.Chain))
	}
	for i, w := range words {
		if strings.ContainsAny(w, "\n\r\x00") {
			s.fail(fmt.Errorf("chain %s: rule %q does not fit a line", id, w))
		}
		if i > 0 {
			s.text.WriteByte(' ')
		}
		s.text.WriteString(w)
	}
	s.text.WriteByte('\n')
	s.lines++
	if n := len(s.marks); n == 0 || s.marks[n-1].id != id {
		s.marks = append(s.marks, mark{s.lines, id})
	}
}

func (s *Script) fail(err error) { s.err = errors.Join(s.err, err) }

// At returns the chain and the text of a line, counted from 1. The chain has no name if the line opens or
// closes a block.
func (s *Script) At(line int) (ID, string) {
	if line < 1 || line > s.lines {
		return ID{}, ""
	}
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].line > line })
	lines := strings.SplitN(s.text.String(), "\n", line+1)
	return s.marks[i-1].id, lines[line-1]
}
