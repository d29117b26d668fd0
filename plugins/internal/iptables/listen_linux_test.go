// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
)

func TestMain(m *testing.M) { netns.Main(m) }

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
}

func runs(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// What a process removes from nft's tables is noticed, with the process; one that only
// adds is not. A change of ours is known by the program that made it.
func TestKernelEvents(t *testing.T) {
	needsRoot(t)
	tool, err := Open(t.Context(), sdk.IPv4, NFT)
	if err != nil {
		t.Skip("needs the backend: ", err)
	}
	t.Cleanup(func() {
		runs(t, "iptables-nft", "-F")
		runs(t, "iptables-nft", "-X")
	})
	events, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	next := heard(t, events)
	runs(t, "iptables-nft", "-N", "KUBE-X")
	runs(t, "iptables-nft", "-A", "KUBE-X", "-j", "DROP")
	runs(t, "iptables-nft", "-F", "KUBE-X")
	gone := Gone{sdk.IPv4, ID{"filter", "KUBE-X"}}
	if c := next(); !slices.Equal(c.Gone, []Gone{gone}) || c.Program != "iptables-nft" {
		t.Errorf("a flush is heard as %+v", c)
	}
	runs(t, "iptables-nft", "-X", "KUBE-X")
	if c := next(); !slices.Equal(c.Gone, []Gone{gone}) {
		t.Errorf("a deletion is heard as %+v", c)
	}

	var ours int
	tool.Started = func(pid int) { ours = pid }
	for _, remove := range []bool{false, true} {
		var s Script
		s.Begin("filter")
		s.Chain("KUBE-Y", []Rule{"-j DROP"})
		if remove {
			s.Declare("KUBE-Y")
		}
		s.Commit()
		if err := tool.Restore(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
	if c := next(); c.Port != uint32(ours) || ours == 0 {
		t.Errorf("a change of ours, by process %d, is heard as %+v", ours, c)
	}
}

// A listener for some losses only gets no others, however many they are.
func TestKernelEventsThatMatter(t *testing.T) {
	needsRoot(t)
	tool, err := Open(t.Context(), sdk.IPv4, NFT)
	if err != nil {
		t.Skip("needs the backend: ", err)
	}
	events, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	events.Matters = func(g Gone) bool { return g.ID.Chain == "OURS" }
	next := heard(t, events)
	for _, remove := range []bool{false, true} {
		s := new(Script)
		s.Begin("filter")
		for i := range enough + 10 {
			if name := fmt.Sprintf("THEIRS-%d", i); remove {
				s.Remove(name)
			} else {
				s.Declare(name)
			}
		}
		s.Commit()
		if err := tool.Restore(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	runs(t, "iptables-nft", "-N", "OURS")
	runs(t, "iptables-nft", "-X", "OURS")
	if c := next(); c.Missed || len(c.Gone) != 1 || c.Gone[0].ID.Chain != "OURS" {
		t.Errorf("what is heard first is %d losses, some missed: %t", len(c.Gone), c.Missed)
	}
}

// What a program of ours does is not told when that was asked for, and what others
// do meanwhile is. A program may end before it is asked for, but not always.
func TestKernelEventsIgnoreOurs(t *testing.T) {
	needsRoot(t)
	tool, err := Open(t.Context(), sdk.IPv4, NFT)
	if err != nil {
		t.Skip("needs the backend: ", err)
	}
	events, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	next := heard(t, events)
	ignore := func(pid int) {
		if err := events.Ignore(pid); err != nil {
			t.Error(err)
		}
	}
	tool.Started, tool.Ended = ignore, func() { ignore(0) }
	var s Script
	s.Begin("filter")
	s.Chain("KUBE-OURS", []Rule{"-j DROP"})
	s.Commit()
	s.Begin("filter")
	s.Declare("KUBE-OURS")
	s.Remove("KUBE-OURS")
	s.Commit()
	ours, theirs := Gone{sdk.IPv4, ID{"filter", "KUBE-OURS"}}, Gone{sdk.IPv4, ID{"filter", "KUBE-THEIRS"}}
	for range 20 {
		if err := tool.Restore(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
		runs(t, "iptables-nft", "-N", "KUBE-THEIRS")
		runs(t, "iptables-nft", "-X", "KUBE-THEIRS")
		all := next().Gone
		early := slices.Contains(all, ours)
		if early {
			all = next().Gone
		}
		if !slices.Equal(all, []Gone{theirs}) {
			t.Fatalf("heard is %+v; want what others did", all)
		}
		if !early {
			return
		}
	}
	t.Error("what our program did is heard each time")
}

// heard is what events has next.
func heard(t *testing.T, events *Events) (next func() Commit) {
	commits := make(chan Commit)
	go func() { // ends when events is closed
		defer close(commits)
		for {
			c, err := events.Next()
			if err != nil {
				return
			}
			commits <- c
		}
	}()
	t.Cleanup(func() {
		events.Close()
		for range commits {
		}
	})
	return func() Commit {
		t.Helper()
		select {
		case c := <-commits:
			return c
		case <-time.After(20 * time.Second):
			t.Fatal("nothing was heard")
			return Commit{}
		}
	}
}

// The size of a legacy table is another when another process changed it.
func TestKernelTableSize(t *testing.T) {
	needsRoot(t)
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tool, err := Open(t.Context(), family, Legacy)
		if err != nil {
			t.Skip("needs the backend: ", err)
		}
		runs(t, tool.Prefix, "-N", "KUBE-X")
		before, err := TableSize(family, "filter")
		if err != nil {
			t.Fatal(err)
		}
		runs(t, tool.Prefix, "-A", "KUBE-X", "-j", "DROP")
		after, err := TableSize(family, "filter")
		if err != nil || after.Rules != before.Rules+1 || after.Bytes <= before.Bytes {
			t.Errorf("%s: the table was %+v, and with a rule more %+v, %v", family, before, after, err)
		}
		runs(t, tool.Prefix, "-F")
		runs(t, tool.Prefix, "-X")
		if again, err := TableSize(family, "filter"); err != nil || again == before {
			t.Errorf("%s: the table was %+v, and without the chain is %+v, %v", family, before, again, err)
		}
	}
}
