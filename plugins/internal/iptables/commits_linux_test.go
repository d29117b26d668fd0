// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"os"
	"os/exec"
	"testing"

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

// Foreign counts the commits of other processes in both families, and not those of this process.
func TestKernelForeign(t *testing.T) {
	needsRoot(t)
	tool, err := Open(t.Context(), sdk.IPv4, NFT)
	if err != nil {
		t.Skip("needs the backend: ", err)
	}
	t.Cleanup(func() {
		for _, table := range []string{"filter", "nat"} {
			runs(t, "iptables-nft", "-t", table, "-F")
			runs(t, "iptables-nft", "-t", table, "-X")
		}
	})
	tool.Commits = new(Commits)
	foreign := func() uint32 {
		t.Helper()
		n, err := tool.Foreign()
		if err != nil {
			t.Fatal(err)
		}
		return n.generation
	}
	before := foreign()
	ours := Block{Table: "nat", Whole: []Chain{{ID: inNat("KUBE-OURS")}}}
	write := func(p ...Block) error { return tool.Restore(t.Context(), Plan(p).Script(NFT)) }
	if err := write(Block{Table: "filter", Whole: []Chain{{ID: ID{"filter", "KUBE-OURS"}, Rules: []Rule{"-j DROP"}}}}, ours); err != nil {
		t.Fatal(err)
	}
	if now := foreign(); now != before {
		t.Errorf("after two commits of this process Foreign counts %d", now-before)
	}
	if err := write(ours); err != nil { // it exists and is empty
		t.Fatal(err)
	}
	if now := foreign(); now != before {
		t.Errorf("after a script that changes nothing Foreign counts %d", int32(now-before))
	}
	runs(t, "ip6tables-nft", "-N", "THEIRS")
	runs(t, "ip6tables-nft", "-X", "THEIRS")
	if now := foreign(); now != before+2 {
		t.Errorf("after two commits of another process Foreign counts %d", now-before)
	}
	if err := write(Block{Table: "filter", Delete: []Jump{{ID{"filter", "INPUT"}, "-j KUBE-NONE"}}}); err == nil {
		t.Error("a rule that does not exist was deleted")
	}
	if now := foreign(); now != before+2 {
		t.Errorf("after a script that failed Foreign counts %d", now-before)
	}
}
