// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pointsman/pointsman/sdk"
)

// A Backend is which of the kernel's two rule machines the tools write to. Rules
// of one are not seen in the other, so a node should use one only.
type Backend string

// The backends, by the names that distributions give the tools.
const (
	NFT    Backend = "nft"
	Legacy Backend = "legacy"
)

// A Tool is the iptables programs of one IP family and one backend.
type Tool struct {
	Family  sdk.Family
	Backend Backend
	Version string // as "1.8.9"

	// Prefix is what the programs' names begin with: "iptables-nft", and from it
	// "iptables-nft-save". It may hold a path.
	Prefix string

	// Kernel, if not nil, is read and written in place of the programs: a test's.
	Kernel Kernel

	// Most is how much one piece of a plan may hold. The zero value: what suits the backend.
	Most Limit

	// Hold, if not nil, is handed to every program that writes: a lock that then
	// lasts until the program is done.
	Hold *os.File

	// Commits, if not nil, counts what the programs commit to nf_tables. The tools of one process share it.
	Commits *Commits

	// Heard, if not nil, is told now and then that a program gets on: that it prints
	// tables, or uses the processor.
	Heard func()

	// Waiting, if not nil, is told when a program begins to wait for another
	// one's lock, and with an empty text when it is done.
	Waiting func(string)
}

// A Kernel has the tables that a Tool reads and writes.
type Kernel interface {
	Save(ctx context.Context, tables ...string) (Tables, error)
	Restore(context.Context, *Script) error
}

// lockWait is for how many seconds a program waits for the lock by itself. It does
// so without a word, so it is not long, and then it is asked again.
const lockWait = "1"

// A LineError is one line of a Script that iptables-restore did not take. Nothing
// of its block took effect; blocks before it did.
type LineError struct {
	Chain ID     // the chain that the line is about; no name when it opens or closes a block
	Line  string // as it was handed over
	Why   string // what the program said
}

func (e *LineError) Error() string {
	return fmt.Sprintf("iptables-restore refused %q in table %s: %s", e.Line, e.Chain.Table, e.Why)
}

// Restore hands s to the kernel, block by block, waiting for other programs'
// locks as long as ctx allows. When the program names a line, the error is a
// *LineError.
func (t Tool) Restore(ctx context.Context, s *Script) error {
	if t.Kernel != nil && !s.Empty() {
		return t.Kernel.Restore(ctx, s)
	}
	return t.restore(ctx, s, "--noflush", "-w", lockWait)
}

// Test reports what Restore would, and changes nothing.
func (t Tool) Test(ctx context.Context, s *Script) error {
	return t.restore(ctx, s, "--noflush", "-w", lockWait, "--test")
}

func (t Tool) restore(ctx context.Context, s *Script, args ...string) error {
	if s.err != nil {
		return s.err
	}
	if s.Empty() {
		return nil
	}
	_, stderr, err := t.run(ctx, t.program("restore"), s.text.Bytes(), args...)
	if err == nil {
		return nil
	}
	var exit interface{ ExitCode() int }
	if line := failingLine(stderr); line > 0 && errors.As(err, &exit) {
		id, text := s.At(line)
		return &LineError{Chain: id, Line: text, Why: firstLine(stderr)}
	}
	return fmt.Errorf("%s: %w", t.program("restore"), said(err, stderr))
}

// Save reads the tables that are named, whole; without a name, all that there are, at
// once. nft's program reads all rules, whichever table it is asked for, so it is asked
// once for all.
func (t Tool) Save(ctx context.Context, tables ...string) (Tables, error) {
	switch {
	case t.Kernel != nil:
		return t.Kernel.Save(ctx, tables...)
	case len(tables) == 0:
		return t.save(ctx, nil)
	case t.Backend == NFT && len(tables) > 1:
		return t.save(ctx, tables)
	}
	all := make(Tables)
	for _, table := range tables {
		read, err := t.save(ctx, nil, "-t", table)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, read)
	}
	return all, nil
}

// Whole reads all tables that there are, and which of the kernel's own chains drop what their rules
// let pass.
func (t Tool) Whole(ctx context.Context) (Tables, map[ID]bool, error) {
	r := reader{tables: make(Tables), each: t.Heard, drops: make(map[ID]bool)}
	tables, err := t.read(ctx, &r)
	return tables, r.drops, err
}

// save has the program print, and keeps what is in the tables that are named in only,
// or in all.
func (t Tool) save(ctx context.Context, only []string, args ...string) (Tables, error) {
	r := reader{tables: make(Tables), each: t.Heard, only: only}
	tables, err := t.read(ctx, &r, args...)
	for _, table := range r.unreadable {
		if err == nil && (only == nil || slices.Contains(only, table)) {
			err = t.eachChain(ctx, table, tables)
		}
	}
	if err == nil {
		err = t.recognize(ctx, tables)
	}
	return tables, err
}

func (t Tool) read(ctx context.Context, r *reader, args ...string) (Tables, error) {
	stderr, err := t.runInto(ctx, r, t.program("save"), nil, args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(append([]string{t.program("save")}, args...), " "), said(err, stderr))
	}
	return r.end()
}

// run is runInto for programs that print little.
func (t Tool) run(ctx context.Context, program string, stdin []byte, args ...string) (stdout []byte, stderr string, err error) {
	var out bytes.Buffer
	stderr, err = t.runInto(ctx, &out, program, stdin, args...)
	return out.Bytes(), stderr, err
}

// List reads the rules of one chain. A chain that is not there has none, and ok
// is false.
func (t Tool) List(ctx context.Context, id ID) (rules []Rule, ok bool, err error) {
	if t.Kernel != nil {
		all, err := t.Kernel.Save(ctx, id.Table)
		rules, ok = all[id]
		return rules, ok, err
	}
	stdout, stderr, err := t.run(ctx, t.Prefix, nil, "-w", lockWait, "-t", id.Table, "-S", id.Chain)
	if err != nil {
		if gone := strings.Contains(stderr, "No chain/target/match") || strings.Contains(stderr, "does not exist"); gone {
			return nil, false, nil
		}
		if strings.Contains(stderr, "incompatible") {
			err = ErrUnreadable
		}
		return nil, false, fmt.Errorf("%s -t %s -S %s: %w", t.Prefix, id.Table, id.Chain, said(err, stderr))
	}
	for line := range strings.Lines(string(stdout)) {
		if rest, isRule := strings.CutPrefix(strings.TrimSpace(line), "-A "+id.Chain+" "); isRule {
			rules = append(rules, asWritten(rest))
		}
	}
	return rules, true, nil
}

// ErrUnreadable is the error of List for a chain in which other programs have rules that only nft can print.
var ErrUnreadable = errors.New("it has rules that only nft can print")

// Find is List, but of a chain that the program cannot print it returns Unread and the listed jumps that it has:
// the program compares a single rule there, too.
func (t Tool) Find(ctx context.Context, id ID) (rules []Rule, ok bool, err error) {
	rules, ok, err = t.List(ctx, id)
	if !errors.Is(err, ErrUnreadable) {
		found := Tables{id: rules}
		if err == nil {
			err = t.recognize(ctx, found)
		}
		return found[id], ok, err
	}
	chains, err := t.chains(ctx, id.Table)
	if err != nil || !slices.Contains(chains, id.Chain) {
		return nil, false, err // the program says the same of a chain that is not there
	}
	rules = []Rule{Unread}
	for j, rule := range jumps {
		if j.At != id || !slices.Contains(chains, rule.Target()) {
			continue // where no chain is, no jump leads to it
		}
		has, err := t.has(ctx, id, rule)
		switch {
		case ctx.Err() != nil:
			return nil, false, err
		case err != nil:
			rules = append(rules, Rule(unsure+err.Error()))
		case has != "":
			rules = append(rules, has)
		}
	}
	return rules, true, nil
}

// recognize replaces rules that are a listed jump which another version of the program prints in other words. It asks only
// where a rule that is not listed leads to the chain of one that is.
func (t Tool) recognize(ctx context.Context, tables Tables) error {
	if t.Kernel != nil {
		return nil
	}
	for j, rule := range jumps {
		leads := func(r Rule) bool { return r.Target() == rule.Target() && !(Jump{j.At, r}).Listed() }
		at := slices.IndexFunc(tables[j.At], leads)
		if at < 0 || slices.ContainsFunc(tables[j.At], func(r Rule) bool { p, _ := r.plain(); return p == j.Rule }) {
			continue
		}
		switch has, err := t.has(ctx, j.At, rule); {
		case ctx.Err() != nil:
			return err
		case err != nil:
			tables[j.At] = append(tables[j.At], Rule(unsure+err.Error()))
		case has != "":
			tables[j.At][at] = has
		}
	}
	return nil
}

// has returns a rule of the list as chain id has it, with whatever mark; empty: it has none.
func (t Tool) has(ctx context.Context, id ID, rule Rule) (Rule, error) {
	for bit := range uint8(32) {
		exact := Rule(strings.Replace(string(rule), "BIT", OneBit(bit), 1))
		if there, err := t.Exists(ctx, id, exact); there || err != nil {
			return exact, err
		}
		if exact == rule {
			break
		}
	}
	return "", nil
}

// Exists reports whether chain id has rule, as the program compares them. Only its exit codes 0 and 1 are an answer.
func (t Tool) Exists(ctx context.Context, id ID, rule Rule) (bool, error) {
	if t.Kernel != nil {
		rules, _, err := t.List(ctx, id)
		return slices.Contains(rules, rule), err
	}
	words, err := rule.Fields()
	if err != nil {
		return false, err
	}
	there, err := t.check(id, words)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return false, fmt.Errorf("%s -t %s -C %s %s: %w", t.Prefix, id.Table, id.Chain, rule, err)
	}
	return there, nil
}

// Policy is what becomes of what no rule of a chain decides: "ACCEPT" or "DROP"; empty for
// a chain that has none.
func (t Tool) Policy(ctx context.Context, id ID) (string, error) {
	stdout, stderr, err := t.run(ctx, t.Prefix, nil, "-w", lockWait, "-t", id.Table, "-S", id.Chain)
	if err != nil {
		return "", fmt.Errorf("%s -t %s -S %s: %w", t.Prefix, id.Table, id.Chain, said(err, stderr))
	}
	first, _, _ := strings.Cut(string(stdout), "\n")
	policy, ok := strings.CutPrefix(first, "-P "+id.Chain+" ")
	if !ok {
		return "", nil
	}
	return strings.TrimSpace(policy), nil
}

func (t Tool) program(verb string) string { return t.Prefix + "-" + verb }

// failingLine is the number of the line that the program complains about, 0 when
// it names none. The programs word it in three ways: "line 7: RULE_APPEND
// failed", "line 7 failed" and "Error occurred at line: 7".
func failingLine(stderr string) int {
	m := namedLine.FindStringSubmatch(stderr)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}

var namedLine = regexp.MustCompile(`\bline:? (\d+)\b`)

// firstLine is the first that gives a reason. nft's programs say their own name and
// version in a line before.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasSuffix(line, ":") && !strings.Contains(line, "xtables lock") {
			return line
		}
	}
	return "no reason given"
}

func said(err error, stderr string) error {
	if stderr = strings.TrimSpace(stderr); stderr == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, firstLine(stderr))
}
