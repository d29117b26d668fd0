// SPDX-License-Identifier: Apache-2.0

package nftnl

import (
	"errors"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

// dial opens a Conn in the test's network namespace.
func dial(t testing.TB) *Conn {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	c, err := Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// nft runs nft and returns its output.
func nft(t testing.TB, input string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("needs nft, to compare with")
	}
	cmd := exec.Command(path, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v: %s\n%s", args, err, out, input)
	}
	return string(out)
}

func send(t testing.TB, c *Conn, b *Batch) {
	t.Helper()
	if err := c.Send(t.Context(), b); err != nil {
		t.Fatal(err)
	}
}

// mark encodes a number as a packet mark.
func mark(n uint32) string { return string(native.AppendUint32(nil, n)) }

var (
	keyFields  = []Field{Addr4, Proto, Port}
	destFields = []Field{Addr4, Port}
)

var left = regexp.MustCompile(`expires [0-9a-z]+`)

// handle matches the handle of a rule and of its predecessor in the output of nft.
var handle = regexp.MustCompile(`(?m)^(ip TABLE \S+)( \d+)+$`)

// swap is a step that nft 1.0.6 adds before "!=" with a protocol. It does nothing, because a single byte has no byte
// order.
const swap = "  [ byteorder reg 9 = hton(reg 9, 2, 1) ]\n"

// normalize removes what may differ between listings: the remaining time of elements, and the handles of rules.
func normalize(s string) string {
	s = strings.ReplaceAll(s, swap, "")
	return handle.ReplaceAllString(left.ReplaceAllString(s, "expires SOON"), "$1")
}

// TestKernelListsAsNftWrites: the rules that this package writes equal, byte for byte, those that nft writes from text,
// and nft lists both alike.
func TestKernelListsAsNftWrites(t *testing.T) {
	c := dial(t)
	writeSamples(t, c)
	var text strings.Builder
	text.WriteString("table ip theirs {\n" + sampleText + "chain samples { type nat hook prerouting priority -100; policy accept;\n")
	for _, s := range samples {
		text.WriteString(s.text + "\n")
	}
	text.WriteString("}\n}\n" + `
		add element ip theirs frontends { 10.0.0.1 . tcp . 80 comment "shop/web:http cluster-ip" }
		add element ip theirs allowed { 10.0.0.1 . tcp . 80 . 10.2.0.0-10.2.0.9 }
		add element ip theirs numbers { 10.0.0.1 . tcp . 80 : 1:2 }
		add element ip theirs known { 1:2 }
		add element ip theirs numbered { 1:2 . 10.2.0.1 }
		add element ip theirs endpoints { 10.0.0.1 . tcp . 80 . 7 : 10.9.0.1 . 8080 }
		add element ip theirs sticky { 10.2.0.1 expires 30m : 10.9.0.1 . 8080 }
	`)
	nft(t, text.String(), "-f", "-")
	defer nft(t, "", "delete", "table", "ip", "theirs")
	for _, flags := range [][]string{{"--debug=netlink"}, {"-t"}, {"-j"}, nil} {
		list := func(table string) string {
			out := nft(t, "", append(flags, "list", "table", "ip", table)...)
			return normalize(strings.ReplaceAll(out, table, "TABLE"))
		}
		if flags != nil && flags[0] == "-j" {
			list("ours") // handles differ, so only check that nft can list it
			continue
		}
		if ours, theirs := list("ours"), list("theirs"); ours != theirs {
			t.Errorf("nft %v lists our table as\n%s\nand its own table as\n%s", flags, ours, theirs)
		}
	}
}

// TestKernelReadsBack: objects are read back as they were written.
func TestKernelReadsBack(t *testing.T) {
	c := dial(t)
	writeSamples(t, c)
	l := c.List(IPv4, "ours")
	rules, err := l.Rules(t.Context(), "samples")
	if err != nil || len(rules["samples"]) != len(samples) {
		t.Fatalf("%d rules, %v", len(rules["samples"]), err)
	}
	for i, r := range rules["samples"] {
		for j, s := range samples {
			if (Canonical(r.Exprs()) == Canonical(s.exprs)) != (i == j) {
				t.Errorf("rule %q equals %q: %t", samples[i].text, s.text, i != j)
			}
		}
	}
	chains, err := l.Chains(t.Context())
	if hook := chains["samples"].Hook; err != nil || len(chains) != 3 || hook == nil || *hook != (Hook{"nat", PreRouting, -100}) {
		t.Errorf("chains are %+v, %v", chains, err)
	}
	sets, err := l.Sets(t.Context())
	if err != nil || len(sets) != len(sampleSets) || sets["sticky"].Timeout != time.Hour {
		t.Errorf("sets are %+v, %v", sets, err)
	}
	for _, s := range sampleSets {
		if o := sets[s.Name]; o.Shape() != s.Shape() {
			t.Errorf("set %s is read as %+v", s.Name, o)
		}
		found, err := l.Elements(t.Context(), s.Name)
		if err != nil || len(found) != 1 {
			t.Errorf("set %s has %+v, %v", s.Name, found, err)
		}
	}
	if found, err := l.Elements(t.Context(), "frontends"); err != nil || found[0] != (Element{Key: at10, Comment: "shop/web:http cluster-ip"}) {
		t.Errorf("an element is read as %+v, %v", found, err)
	}
	if found, err := l.Elements(t.Context(), "numbers"); err != nil || found[0].Data != mark(0x10002) {
		t.Errorf("a number is read as %+v, %v", found, err)
	}
	table, err := l.Table(t.Context())
	if err != nil || table == nil || table.Owner != 0 {
		t.Errorf("the table is %+v, %v", table, err)
	}
	if none, err := c.List(IPv4, "none").Table(t.Context()); none != nil || err != nil {
		t.Errorf("Table returned %+v, %v for a missing table", none, err)
	}
}

// TestKernelNamesEachFault: for a refused batch, the faults identify the bad operations, one in each message. The batch
// changes nothing.
func TestKernelNamesEachFault(t *testing.T) {
	c := dial(t)
	writeSamples(t, c)
	before, err := c.Generation(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch(IPv4, "ours")
	b.Add("endpoints", Element{Key: at10 + mark(1), Data: "\x0a\x09\x00\x01\x1f\x90\x00\x00"})
	b.Add("endpoints", Element{Key: at10 + mark(7), Data: "\x0a\x09\x00\x02\x1f\x90\x00\x00"}) // 1: exists with other data
	b.Add("endpoints", Element{Key: at10 + mark(2), Data: "\x0a\x09\x00\x01\x1f\x90\x00\x00"})
	b.Remove("frontends", Element{Key: at10})
	b.Remove("frontends", Element{Key: "\x0b" + at10[1:]}) // 4: does not exist
	b.Add("frontends", Element{Key: "short"})              // 5: not a valid key
	b.FlushChain("none")                                   // 6: the chain does not exist
	err = c.Send(t.Context(), b)
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatal(err)
	}
	got := map[int]error{}
	for _, f := range faults {
		if f.First == f.Last {
			got[f.First] = f.Errno
		}
	}
	want := map[int]error{1: unix.EEXIST, 4: unix.ENOENT, 5: unix.EINVAL, 6: unix.ENOENT}
	for op, errno := range want {
		if got[op] != errno {
			t.Errorf("operation %d: %v, want %v; all: %+v", op, got[op], errno, faults)
		}
	}
	if len(got) != len(want) || !errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EPERM) {
		t.Errorf("faults are %+v", faults)
	}
	if after, err := c.Generation(t.Context()); err != nil || after != before {
		t.Errorf("a refused batch changed the generation from %d to %d, %v", before, after, err)
	}
}

// TestKernelLongLists: more elements than fit one message can be added, listed and removed.
func TestKernelLongLists(t *testing.T) {
	c := dial(t)
	writeSamples(t, c)
	const many = 20_000
	all := func(f func(Element)) {
		for i := range uint32(many) {
			f(Element{Key: at10 + mark(i+100), Data: "\x0a\x09\x00\x01\x1f\x90\x00\x00"})
		}
	}
	b := NewBatch(IPv4, "ours")
	all(func(e Element) { b.Add("endpoints", e) })
	if b.Len() != many || len(b.messages) < 10 {
		t.Errorf("%d operations in %d messages", b.Len(), len(b.messages))
	}
	send(t, c, b)
	found, err := c.List(IPv4, "ours").Elements(t.Context(), "endpoints")
	if err != nil || len(found) != many+1 {
		t.Fatalf("%d elements, %v", len(found), err)
	}
	b = NewBatch(IPv4, "ours")
	all(func(e Element) { b.Remove("endpoints", e) })
	send(t, c, b)
}

// HasMatch returns ENOENT for a match that does not exist.
func TestKernelHasNoSuchMatch(t *testing.T) {
	if err := dial(t).HasMatch(t.Context(), IPv4, "nosuch"); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
