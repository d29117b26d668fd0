// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/frame"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/sdktest/netns"
	"github.com/pointsman/pointsman/test/eventually"
)

func TestMain(m *testing.M) { netns.Main(m) }

// A place is rules in the tables of a kernel, in a namespace of their own.
type place struct {
	*testing.T
	*Rules
}

// onKernel runs a test with each backend.
func onKernel(t *testing.T, test func(place)) {
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
			s := place{t, New(testConfig(), tool)}
			s.Masquerade = &masquerade.Hold{Ledger: shared, Holder: "test", Tool: tool}
			s.SetJumps(way, wider)
			t.Cleanup(func() {
				for _, table := range s.tables() {
					s.run("-t", table, "-F")
					s.run("-t", table, "-X")
				}
			})
			test(s)
		})
	}
}

func (s place) run(args ...string) {
	s.Helper()
	program := "iptables-" + string(s.Tool.Backend)
	if out, err := exec.Command(program, append([]string{"-w"}, args...)...).CombinedOutput(); err != nil {
		s.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

// write makes the kernel have what is desired, from what is known or read now.
func (s place) write() (steps []string, err error) {
	if !s.known {
		if _, err := s.List(s.Context()); err != nil {
			return nil, err
		}
	}
	if _, err := s.Masquerade.Ensure(s.Context(), 14); err != nil {
		return nil, err
	}
	p := s.Plan()
	_, err = p.Apply(s.Context())
	return p.Steps(), err
}

// must writes changes of which nothing is refused.
func (s place) must(changes map[sdk.Name]Piece) {
	s.Helper()
	s.SetDesired(changes)
	if _, err := s.write(); err != nil {
		s.Fatal(err)
	}
}

// lasts fails unless the kernel has what is desired.
func (s place) lasts() {
	s.Helper()
	if _, err := s.List(s.Context()); err != nil {
		s.Fatal(err)
	}
	if steps, err := s.write(); err != nil || len(steps) > 0 {
		s.Errorf("still to be written: %q, %v", steps, err)
	}
}

// strange is the rules of a Service that no kernel takes.
func strange(service int) Piece {
	p := serve(service, 2)
	p.Chains[0].Text = "-p tcp -m tcp --dport 99999 -j DROP\n"
	return p
}

// Of a line that the kernel refuses it is told whose it may be, where the program says which
// it is. Then nothing of its table was taken, and without that Service everything is.
func TestKernelRefusesALine(t *testing.T) {
	onKernel(t, func(s place) {
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1), nameOf(2): serve(2, 1), nameOf(3): serve(3, 0)})
		s.SetDesired(map[sdk.Name]Piece{nameOf(1): strange(1), nameOf(2): serve(2, 3), nameOf(5): serve(5, 2)})
		_, err := s.write()
		refused, is := errors.AsType[*frame.Refused](err)
		line, named := errors.AsType[*iptables.LineError](err)
		if !is || !named || s.known {
			s.Fatal(err)
		}
		if line.Line != "COMMIT" && !slices.Equal(refused.Suspects, []sdk.Name{nameOf(1)}) {
			s.Errorf("%v may have %q", refused.Suspects, line.Line)
		}
		if s.Stats.Failures != 1 || s.Stats.Partial != 1 {
			s.Errorf("it is counted as %+v", s.Stats)
		}
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
		s.lasts()
	})
}

// Other rules are noticed, each by the cheapest look that can, and put back.
func TestKernelDoubt(t *testing.T) {
	onKernel(t, func(s place) {
		lock, err := s.Masquerade.Ledger.TryLock("test")
		if err != nil {
			s.Fatal(err)
		}
		defer lock.Unlock()
		s.Hold(lock)
		s.Tool.Commits = new(iptables.Commits)
		s.SetFixed([]iptables.Chain{{ID: mangle("KUBE-IPVS-NEAR"), Rules: []iptables.Rule{"-j RETURN"}}})
		near := iptables.Jump{At: mangle("INPUT"), Rule: `-m conntrack --ctstate NEW -j KUBE-IPVS-NEAR`}
		s.SetJumps(append(slices.Clone(way), near), append(slices.Clone(way), near))
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1), nameOf(2): serve(2, 0)})
		look := func() {
			for range 2 * maxLooks {
				s.Look(s.Context())
			}
		}
		if look(); s.Doubt() != "" {
			s.Fatalf("nothing happened, and yet: %s", s.Doubt())
		}
		s.next = time.Time{} // it may look closer at once
		s.run("-A", "FORWARD", "-p", "99", "-j", "DROP")
		if look(); s.Doubt() != "" || s.next.IsZero() {
			s.Fatalf("others have added a rule of their own; it looked closer: %t, and doubts: %q", !s.next.IsZero(), s.Doubt())
		}
		for i, args := range []string{"-t nat -F KUBE-SERVICES", "-t nat -F KUBE-SVC-1", "-t nat -D PREROUTING 1", "-t mangle -F KUBE-IPVS-NEAR", "-t mangle -D INPUT 1"} {
			if s.run(strings.Fields(args)...); s.Doubt() != "" {
				s.Fatal(s.Doubt())
			}
			s.must(nil) // nothing of it is known yet, so nothing is written, and the kernel is asked nothing
			eventually.True(s.T, "iptables "+args+" is noticed", func() bool { s.Look(s.Context()); return s.Doubt() != "" })
			if s.must(map[sdk.Name]Piece{nameOf(3): serve(3, i)}); s.Doubt() == "" {
				s.Fatalf("after iptables %s other rules were written, and what was lost is forgotten", args)
			}
			s.Hold(lock) // what is known may have changed before
			if steps, err := s.write(); err != nil || len(steps) == 0 {
				s.Fatalf("after iptables %s: %q, %v", args, steps, err)
			}
			s.lasts()
			s.must(nil) // what was read is as it should be
		}
	})
}

// A comparison finds what no count tells: a rule in place of another.
func TestKernelCompare(t *testing.T) {
	onKernel(t, func(s place) {
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
		if s.Compare(s.Context()); s.Doubt() != "" {
			s.Fatal(s.Doubt())
		}
		s.run("-t", "nat", "-R", "KUBE-SVC-1", "1", "-j", "RETURN")
		if s.Compare(s.Context()); !strings.Contains(s.Doubt(), "KUBE-SVC-1") {
			s.Errorf("the comparison found %q", s.Doubt())
		}
	})
}

// What was just read, and not changed since, is not read again.
func TestKernelIsCurrent(t *testing.T) {
	onKernel(t, func(s place) {
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
		if s.IsCurrent() {
			s.Error("it was written to since the last reading")
		}
		if _, err := s.List(s.Context()); err != nil || !s.IsCurrent() {
			s.Fatal(err, s.IsCurrent())
		}
		s.must(nil)
		if !s.IsCurrent() {
			s.Error("nothing was written, and it counts as changed")
		}
		s.run("-t", "nat", "-N", "OTHER")
		if s.IsCurrent() {
			s.Error("a chain more is not seen")
		}
		if _, err := s.List(s.Context()); err != nil {
			s.Fatal(err)
		}
		if s.Hold(nil); s.IsCurrent() {
			s.Error("it is not known which process may have written since")
		}
	})
}

// What all modes share is taken from the same reading, unless a process wrote since.
func TestKernelSharedChainsRead(t *testing.T) {
	onKernel(t, func(s place) {
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
		for _, harm := range [][]string{nil, {"-F", masquerade.Mark}, {"-D", "POSTROUTING", "1"}} {
			s.Masquerade.Forget() // as the next process
			if _, err := s.List(s.Context()); err != nil {
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
	onKernel(t, func(s place) {
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
		prefix := s.Tool.Prefix
		s.Tool.Prefix = "/nowhere/iptables"
		s.SetDesired(map[sdk.Name]Piece{nameOf(2): serve(2, 1)})
		if _, err := s.write(); err == nil || s.known {
			s.Fatal("nothing was written, and it is said to be", err)
		}
		s.Tool.Prefix = prefix
		s.must(nil)
		s.lasts()
		if !s.Installed()[nameOf(2)].Equal(serve(2, 1)) {
			s.Error("what was put is not written by the next call")
		}
	})
}
