// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A Script is the input of iptables-restore: one or more blocks of changes to a table that take effect
// together. It records errors of its methods and returns them when it is run.
type Script struct {
	text bytes.Buffer
	err  error
}

// isChainName reports whether the programs and the kernel accept name for a chain.
func isChainName(name string) bool {
	return len(name) <= 28 && strings.Trim(name, plain+"./:") == "" && !strings.ContainsAny(name[:1], "_-./:")
}

// Empty reports whether the script changes nothing.
func (s *Script) Empty() bool { return s.text.Len() == 0 }

// String returns the input of iptables-restore.
func (s *Script) String() string { return s.text.String() }

// Write adds b to s in the form that is fastest for the programs of a backend. It declares all chains before
// any rule, because rules may lead to any of them.
func (b Block) Write(s *Script, to Backend) {
	s.put("*" + b.Table)
	for _, chain := range b.declared(to) {
		s.declare(chain)
	}
	for _, id := range b.Remove {
		s.declare(id.Chain) // this also empties it, so that its rules lead nowhere
	}
	for _, c := range b.Whole {
		for _, r := range c.Rules {
			s.put("-A", c.ID.Chain, string(r))
		}
	}
	for _, j := range b.Delete {
		s.put("-D", j.At.Chain, string(j.Rule))
	}
	for _, j := range b.Insert {
		s.put("-I", j.At.Chain, string(j.Rule))
	}
	for _, id := range slices.Backward(b.Remove) { // iptables-legacy-restore searches for the next chain after each removal
		s.put("-X", id.Chain)
	}
	s.put("COMMIT")
}

// declare creates chain, or empties it if it exists.
func (s *Script) declare(chain string) {
	if !isChainName(chain) {
		s.err = errors.Join(s.err, fmt.Errorf("%q is not a chain name", chain))
	}
	s.put(":"+chain, "- [0:0]")
}

// put adds a line.
func (s *Script) put(words ...string) {
	for i, w := range words {
		if strings.ContainsAny(w, "\n\r\x00") {
			s.err = errors.Join(s.err, fmt.Errorf("%q does not fit a line", words))
		}
		if i > 0 {
			s.text.WriteByte(' ')
		}
		s.text.WriteString(w)
	}
	s.text.WriteByte('\n')
}

// At returns the chain and the text of a line, counted from 1. The chain has no name if the line opens or
// closes a block.
func (s *Script) At(line int) (ID, string) {
	table := ""
	for text := range strings.Lines(s.text.String()) {
		text = strings.TrimSuffix(text, "\n")
		if text[0] == '*' {
			table = text[1:]
		}
		if line--; line > 0 {
			continue
		}
		words := strings.Fields(text)
		switch {
		case text[0] == ':':
			return ID{table, words[0][1:]}, text
		case text[0] == '-':
			return ID{table, words[1]}, text
		}
		return ID{table, ""}, text
	}
	return ID{}, ""
}
