// SPDX-License-Identifier: Apache-2.0

package ruleset

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A stage is rules in the tables of a kernel, in a namespace of their own.
type stage struct {
	*testing.T
	*Rules[int]
}

// onKernel runs a test with each backend.
func onKernel(t *testing.T, test func(stage)) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to a kernel's tables, in a namespace of its own")
	}
	for _, backend := range []iptables.Backend{iptables.NFT, iptables.Legacy} {
		t.Run(string(backend), func(t *testing.T) {
			tool, err := iptables.Open(t.Context(), sdk.IPv4, backend)
			if err != nil {
				t.Skip("needs the backend: ", err)
			}
			shared, err := ledger.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			s := stage{t, NewRules(testConfig(), tool)}
			s.Masquerade = &masquerade.Hold{Ledger: shared, Holder: "test", Tool: tool}
			s.SetJumps(way, wider)
			t.Cleanup(func() {
				for _, table := range tables {
					s.run("-t", table, "-F")
					s.run("-t", table, "-X")
				}
			})
			test(s)
		})
	}
}

func (s stage) run(args ...string) {
	s.Helper()
	program := "iptables-" + string(s.Tool.Backend)
	if out, err := exec.Command(program, append([]string{"-w"}, args...)...).CombinedOutput(); err != nil {
		s.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

// write makes the kernel have what is desired, from what is known or read now.
func (s stage) write() (Plan, error) {
	if !s.Known() {
		if _, err := s.Read(s.Context()); err != nil {
			return nil, err
		}
	}
	if _, err := s.Masquerade.Ensure(s.Context(), 14); err != nil {
		return nil, err
	}
	p := s.Plan()
	return p, s.Write(s.Context(), p)
}

// must writes changes of which nothing is refused.
func (s stage) must(changes map[int]Desired) {
	s.Helper()
	s.PutAll(changes)
	if _, err := s.write(); err != nil {
		s.Fatal(err)
	}
}

// lasts fails unless the kernel has what is desired.
func (s stage) lasts() {
	s.Helper()
	if _, err := s.Read(s.Context()); err != nil {
		s.Fatal(err)
	}
	if p := s.Plan(); len(p) > 0 {
		s.Errorf("still to be written:\n%s", p)
	}
}

// strange is what an owner wants that no kernel takes.
func strange(owner int) Desired {
	d := serve(owner, 2)
	d.Chains[0].Rules = []iptables.Rule{"-p tcp -m tcp --dport 99999 -j DROP"}
	return d
}

// Of a line that the kernel refuses it is told whose it may be, where the program says which
// it is. Then nothing of the plan's table was taken, and without that owner everything is.
func TestKernelRefusesALine(t *testing.T) {
	onKernel(t, func(s stage) {
		s.must(map[int]Desired{1: serve(1, 1), 2: serve(2, 1), 3: serve(3, 0)})
		changes := map[int]Desired{1: strange(1), 2: serve(2, 3), 5: serve(5, 2)}
		s.PutAll(changes)
		_, err := s.write()
		refused := new(iptables.LineError)
		if !errors.As(err, &refused) || s.Known() {
			s.Fatal(err)
		}
		if suspects := s.Suspects(refused, changes); refused.Line != "COMMIT" && !slices.Equal(suspects, []int{1}) {
			s.Errorf("%v may have %q", suspects, refused.Line)
		}
		if s.Stats.Failures != 1 || s.Stats.Partial != 1 {
			s.Errorf("it is counted as %+v", s.Stats)
		}
		s.must(map[int]Desired{1: serve(1, 1)})
		s.lasts()
	})
}

// Other rules are noticed, each by the cheapest look that can, and put back.
func TestKernelDoubt(t *testing.T) {
	onKernel(t, func(s stage) {
		lock, err := s.Masquerade.Ledger.TryLock("test")
		if err != nil {
			s.Fatal(err)
		}
		defer lock.Unlock()
		s.Hold(lock)
		s.Tool.Commits = new(iptables.Commits)
		s.SetFixed(Desired{Chains: []iptables.Chain{{ID: mangle("KUBE-IPVS-NEAR"), Rules: []iptables.Rule{"-j RETURN"}}}})
		near := iptables.Jump{At: mangle("INPUT"), Rule: `-m conntrack --ctstate NEW -j KUBE-IPVS-NEAR`}
		s.SetJumps(append(slices.Clone(way), near), append(slices.Clone(way), near))
		s.must(map[int]Desired{1: serve(1, 1), 2: serve(2, 0)})
		look := func() {
			for range 2 * MaxLooks {
				s.Look(s.Context())
				time.Sleep(LookEvery / 2)
			}
		}
		if look(); s.Doubt() != "" {
			s.Fatalf("nothing happened, and yet: %s", s.Doubt())
		}
		s.run("-A", "FORWARD", "-p", "99", "-j", "DROP")
		s.run("-D", "FORWARD", "-p", "99", "-j", "DROP")
		if look(); s.Doubt() != "" {
			s.Fatalf("others did something with their own rules, and: %s", s.Doubt())
		}
		for i, args := range []string{"-t nat -F KUBE-SVC-1", "-t nat -D PREROUTING 1", "-t mangle -F KUBE-IPVS-NEAR", "-t mangle -D INPUT 1"} {
			if s.run(strings.Fields(args)...); s.Doubt() != "" {
				s.Fatal(s.Doubt())
			}
			s.must(nil) // nothing of it is known yet, so nothing is written, and the kernel is asked nothing
			eventually.True(s, "iptables "+args+" is noticed", func() bool { s.Look(s.Context()); return s.Doubt() != "" })
			if s.must(map[int]Desired{3: serve(3, i)}); s.Doubt() == "" {
				s.Fatalf("after iptables %s other rules were written, and what was lost is forgotten", args)
			}
			s.Hold(lock) // what is known is of before
			if p, err := s.write(); err != nil || len(p) == 0 {
				s.Fatalf("after iptables %s: %v, %v", args, p, err)
			}
			s.lasts()
			s.must(nil) // what was read is as it should be
		}
	})
}

// An audit finds what no look finds: a rule in place of another.
func TestKernelAudit(t *testing.T) {
	onKernel(t, func(s stage) {
		s.must(map[int]Desired{1: serve(1, 1)})
		around := len(s.ObservedAll()) + len(s.Standing())
		for range 2 * around {
			s.Audit(s.Context())
		}
		if s.Doubt() != "" {
			s.Fatal(s.Doubt())
		}
		s.run("-t", "nat", "-R", "KUBE-SVC-1", "1", "-j", "RETURN")
		for range 2 * around {
			s.Audit(s.Context())
		}
		if !strings.Contains(s.Doubt(), "KUBE-SVC-1") {
			s.Errorf("a whole round found %q", s.Doubt())
		}
	})
}

// What was just read, and not changed since, is not read again.
func TestKernelJustRead(t *testing.T) {
	onKernel(t, func(s stage) {
		s.must(map[int]Desired{1: serve(1, 1)})
		if _, err := s.Read(s.Context()); err != nil || !s.JustRead() || !s.Known() {
			s.Fatal(err, s.JustRead())
		}
		s.run("-t", "nat", "-N", "OTHER")
		if s.JustRead() {
			s.Error("a chain more is not seen")
		}
		s.Hold(nil)
		if s.Known() {
			s.Error("it is not known which process may have written since")
		}
	})
}

// What all dataplanes share is taken from the same reading, unless a process wrote since.
func TestKernelSharedChainsRead(t *testing.T) {
	onKernel(t, func(s stage) {
		s.must(map[int]Desired{1: serve(1, 1)})
		for _, harm := range [][]string{nil, {"-F", masquerade.Mark}, {"-D", "POSTROUTING", "1"}} {
			s.Masquerade.Forget() // as the next process
			if _, err := s.Read(s.Context()); err != nil {
				s.Fatal(err)
			}
			if harm != nil {
				s.run(append([]string{"-t", "nat"}, harm...)...)
			}
			steps, err := s.Masquerade.Ensure(s.Context(), 14)
			found, saved := s.Tool.Save(s.Context(), "nat")
			if lacks := masquerade.Lacks(found, 14); err != nil || saved != nil || len(lacks) > 0 || len(steps) > 0 != (harm != nil) {
				s.Errorf("after %v: it did %q, and still lacks %q: %v, %v", harm, steps, lacks, err, saved)
			}
		}
	})
}

// Where a plan stops is known: what was written before the failure is read, not guessed.
func TestKernelAPlanThatStops(t *testing.T) {
	onKernel(t, func(s stage) {
		s.must(map[int]Desired{1: serve(1, 1)})
		prefix := s.Tool.Prefix
		s.Tool.Prefix = "/nowhere/iptables"
		s.Put(2, serve(2, 1))
		if _, err := s.write(); err == nil || s.Known() {
			s.Fatal("nothing was written, and it is said to be", err)
		}
		s.Tool.Prefix = prefix
		s.must(nil)
		s.lasts()
		if _, there := s.Observed(nat("KUBE-SVC-2")); !there {
			s.Error("what was put is not written by the next call")
		}
	})
}
