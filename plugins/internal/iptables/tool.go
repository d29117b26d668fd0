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

// A Backend is one of the two rule engines of the kernel. Neither shows the rules of the other, so a node
// should use only one.
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

	// Prefix is the first part of the programs' names: "iptables-nft" for "iptables-nft-save". It may have a
	// path.
	Prefix string

	// Kernel, if not nil, replaces the programs in tests.
	Kernel Kernel

	// Most is the maximum size of one piece of a plan. The zero value selects a limit for the backend.
	Most Limit

	// Hold, if not nil, is inherited by every program that writes. A lock on it lasts until the program ends.
	Hold *os.File

	// Commits, if not nil, counts the programs' commits to nf_tables. All tools of a process share it.
	Commits *Commits

	// Heard, if not nil, is called from time to time while a program makes progress: it prints tables or uses
	// CPU time.
	Heard func()

	// Waiting, if not nil, is called when a program begins to wait for the lock of another one, and with ""
	// when the wait ends.
	Waiting func(string)
}

// A Kernel has tables that a Tool reads and writes.
type Kernel interface {
	Save(ctx context.Context, tables ...string) (Tables, error)
	Restore(context.Context, *Script) error
}

// lockWait is the number of seconds for which a program itself waits for the lock. It is short because the
// program reports nothing meanwhile. runInto then starts it again.
const lockWait = "1"

// A LineError is a line of a Script that iptables-restore refused. The block with the line had no effect. The
// blocks before it had.
type LineError struct {
	Chain ID     // the chain of the line; without a name if the line opens or closes a block
	Line  string // the line as it was written
	Why   string // the program's message
}

func (e *LineError) Error() string {
	return fmt.Sprintf("iptables-restore refused %q in table %s: %s", e.Line, e.Chain.Table, e.Why)
}

// Restore writes s to the kernel, block by block. It waits for the locks of other programs until ctx ends. If
// the program names the line that failed, the error is a *LineError.
func (t Tool) Restore(ctx context.Context, s *Script) error {
	if t.Kernel != nil && !s.Empty() {
		return t.Kernel.Restore(ctx, s)
	}
	return t.restore(ctx, s)
}

// Test returns the error that Restore would return, and changes nothing.
func (t Tool) Test(ctx context.Context, s *Script) error { return t.restore(ctx, s, "--test") }

func (t Tool) restore(ctx context.Context, s *Script, more ...string) error {
	if s.err != nil || s.Empty() {
		return s.err
	}
	_, stderr, err := t.run(ctx, t.program("restore"), s.text.Bytes(), append([]string{"--noflush", "-w", lockWait}, more...)...)
	if err == nil {
		return nil
	}
	var exit interface{ ExitCode() int }
	if line := failingLine(stderr); line > 0 && errors.As(err, &exit) {
		id, text := s.At(line)
		return &LineError{Chain: id, Line: text, Why: firstLine(stderr)}
	}
	return fmt.Errorf("%s: %w", t.program("restore"), withStderr(err, stderr))
}

// Save reads the named tables completely, or all tables if none is named. iptables-nft-save reads all rules
// even for one table, so it runs once for all.
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

// Whole reads all tables, and reports which built-in chains have the policy DROP.
func (t Tool) Whole(ctx context.Context) (Tables, map[ID]bool, error) {
	r := reader{tables: make(Tables), each: t.Heard, drops: make(map[ID]bool)}
	tables, err := t.read(ctx, &r)
	return tables, r.drops, err
}

// save runs the save program and returns the tables named in only, or all if that is nil.
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
		return nil, fmt.Errorf("%s: %w", strings.Join(append([]string{t.program("save")}, args...), " "), withStderr(err, stderr))
	}
	return r.end()
}

// run is runInto for programs that print little.
func (t Tool) run(ctx context.Context, program string, stdin []byte, args ...string) (stdout []byte, stderr string, err error) {
	var out bytes.Buffer
	stderr, err = t.runInto(ctx, &out, program, stdin, args...)
	return out.Bytes(), stderr, err
}

// List reads the rules of one chain. ok is false if the chain does not exist.
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
		return nil, false, fmt.Errorf("%s -t %s -S %s: %w", t.Prefix, id.Table, id.Chain, withStderr(err, stderr))
	}
	for line := range strings.Lines(string(stdout)) {
		if rest, isRule := strings.CutPrefix(strings.TrimSpace(line), "-A "+id.Chain+" "); isRule {
			rules = append(rules, asWritten(rest))
		}
	}
	return rules, true, nil
}

// ErrUnreadable is the error of List for a chain with rules of other programs that only nft can print.
var ErrUnreadable = errors.New("it has rules that only nft can print")

// Find is List, but for a chain that the program cannot print it returns Unread and the listed jumps in the
// chain: the program can check for a single rule even there.
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
		return nil, false, err // the program prints the same error for a chain that does not exist
	}
	rules = []Rule{Unread}
	for j, rule := range jumps {
		if j.At != id || !slices.Contains(chains, rule.Target()) {
			continue // a jump needs its target chain
		}
		has, err := t.findListed(ctx, id, rule)
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

// recognize replaces rules that are listed jumps in the wording of another version of the program. It asks the
// program only if an unlisted rule leads to the target of a listed one.
func (t Tool) recognize(ctx context.Context, tables Tables) error {
	if t.Kernel != nil {
		return nil
	}
	for j, rule := range jumps {
		leads := func(r Rule) bool { return r.Target() == rule.Target() && !(Jump{j.At, r}).Listed() }
		at := slices.IndexFunc(tables[j.At], leads)
		if at < 0 || slices.ContainsFunc(tables[j.At], func(r Rule) bool { return r.plain() == j.Rule }) {
			continue
		}
		switch has, err := t.findListed(ctx, j.At, rule); {
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

// findListed returns a listed rule as chain id has it, with whatever mark bit, or "" if the chain does not have
// it.
func (t Tool) findListed(ctx context.Context, id ID, rule Rule) (Rule, error) {
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

// Exists reports whether chain id has rule, as the program compares rules. Exit codes other than 0 and 1 are
// errors.
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

// Policy returns the policy of a built-in chain, "ACCEPT" or "DROP", and "" for a chain without one.
func (t Tool) Policy(ctx context.Context, id ID) (string, error) {
	stdout, stderr, err := t.run(ctx, t.Prefix, nil, "-w", lockWait, "-t", id.Table, "-S", id.Chain)
	if err != nil {
		return "", fmt.Errorf("%s -t %s -S %s: %w", t.Prefix, id.Table, id.Chain, withStderr(err, stderr))
	}
	first, _, _ := strings.Cut(string(stdout), "\n")
	policy, ok := strings.CutPrefix(first, "-P "+id.Chain+" ")
	if !ok {
		return "", nil
	}
	return strings.TrimSpace(policy), nil
}

func (t Tool) program(verb string) string { return t.Prefix + "-" + verb }

// failingLine returns the number of the line that a message of the program names, or 0. The programs have three
// forms: "line 7: RULE_APPEND failed", "line 7 failed" and "Error occurred at line: 7".
func failingLine(stderr string) int {
	m := namedLine.FindStringSubmatch(stderr)
	if m == nil {
		return 0
	}
	n, _ := strconv.Atoi(m[1]) // it has only digits
	return n
}

var namedLine = regexp.MustCompile(`\bline:? (\d+)\b`)

// firstLine returns the first line that gives a reason. iptables-nft prints its name and version in a line
// before.
func firstLine(s string) string {
	for line := range strings.Lines(s) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasSuffix(line, ":") && !strings.Contains(line, "xtables lock") {
			return line
		}
	}
	return "no reason given"
}

func withStderr(err error, stderr string) error {
	if stderr = strings.TrimSpace(stderr); stderr == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, firstLine(stderr))
}
