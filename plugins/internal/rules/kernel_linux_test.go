// SPDX-License-Identifier: Apache-2.0

package rules

import (
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

// A place is Rules in a network namespace of their own.
type place struct {
	*testing.T
	*Rules
}

// onKernel runs a test with each backend of iptables.
func onKernel(t *testing.T, test func(place)) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it writes to the kernel's tables in a network namespace")
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

// write plans and applies. It first lists the kernel if its state is unknown.
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

// must writes changes, and fails if the kernel refuses some.
func (s place) must(changes map[sdk.Name]Piece) {
	s.Helper()
	s.SetDesired(changes)
	if _, err := s.write(); err != nil {
		s.Fatal(err)
	}
}

// lasts fails unless the kernel has the desired rules.
func (s place) lasts() {
	s.Helper()
	if _, err := s.List(s.Context()); err != nil {
		s.Fatal(err)
	}
	if steps, err := s.write(); err != nil || len(steps) > 0 {
		s.Errorf("the kernel lacks: %q, %v", steps, err)
	}
}

// Look notices each kind of change by another program, and the next write repairs it.
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
			s.Fatalf("without a change the doubt is: %s", s.Doubt())
		}
		s.lookAt = time.Time{} // allow a close look at once
		s.run("-A", "FORWARD", "-p", "99", "-j", "DROP")
		if look(); s.Doubt() != "" || s.lookAt.IsZero() {
			s.Fatalf("after a foreign rule was added: looked closer %t, doubt %q", !s.lookAt.IsZero(), s.Doubt())
		}
		for i, args := range []string{"-t nat -F KUBE-SERVICES", "-t nat -F KUBE-SVC-1", "-t nat -D PREROUTING 1", "-t mangle -F KUBE-IPVS-NEAR", "-t mangle -D INPUT 1"} {
			if s.run(strings.Fields(args)...); s.Doubt() != "" {
				s.Fatal(s.Doubt())
			}
			s.must(nil) // the change was not noticed yet, so nothing is read or written
			eventually.True(s.T, "iptables "+args+" is noticed", func() bool { s.Look(s.Context()); return s.Doubt() != "" })
			if s.must(map[sdk.Name]Piece{nameOf(3): serve(3, i)}); s.Doubt() == "" {
				s.Fatalf("after iptables %s a write of other rules ended the doubt", args)
			}
			s.Hold(lock) // the state is unknown from now on
			if steps, err := s.write(); err != nil || len(steps) == 0 {
				s.Fatalf("after iptables %s: %q, %v", args, steps, err)
			}
			s.lasts()
			s.must(nil) // ends the doubt
		}
	})
}

// Compare finds a rule that replaces another one, which changes no count, also if the program cannot print it.
func TestKernelCompare(t *testing.T) {
	onKernel(t, func(s place) {
		finds := func(want string) {
			s.Helper()
			if s.Compare(s.Context()); !strings.Contains(s.Doubt(), want) || want == "" && s.Doubt() != "" {
				s.Fatalf("the doubt is %q", s.Doubt())
			}
		}
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
		finds("")
		if s.Tool.Backend == iptables.Legacy { // its programs print everything
			s.run("-t", "nat", "-R", "KUBE-SVC-1", "1", "-j", "RETURN")
			finds("KUBE-SVC-1")
			return
		}
		if _, err := exec.LookPath("nft"); err != nil {
			s.Skip("needs nft (apt-get install nftables)")
		}
		nft := func(command string) string {
			out, err := exec.CommandContext(s.Context(), "nft", "-a", command).CombinedOutput()
			if err != nil {
				s.Fatalf("nft %s: %v: %s", command, err, out)
			}
			return string(out)
		}
		nft("add chain ip nat OTHER; add rule ip nat OTHER meta mark set numgen inc mod 2")
		finds("")
		_, rest, _ := strings.Cut(nft("list chain ip nat KUBE-SVC-1"), " # handle ") // of the chain
		_, rest, _ = strings.Cut(rest, " # handle ")                                 // of its first rule
		handle, _, _ := strings.Cut(rest, "\n")
		nft("replace rule ip nat KUBE-SVC-1 handle " + handle + " meta mark set numgen inc mod 2")
		finds("KUBE-SVC-1")
		s.Hold(nil) // the state is unknown from now on
		if steps, err := s.write(); err != nil || len(steps) == 0 {
			s.Fatalf("%q, %v", steps, err)
		}
		finds("")
	})
}

// IsCurrent reports whether a process has written since the last reading.
func TestKernelIsCurrent(t *testing.T) {
	onKernel(t, func(s place) {
		s.must(map[sdk.Name]Piece{nameOf(1): serve(1, 1)})
		if s.IsCurrent() {
			s.Error("current after a write of this process")
		}
		if _, err := s.List(s.Context()); err != nil || !s.IsCurrent() {
			s.Fatal(err, s.IsCurrent())
		}
		s.must(nil)
		if !s.IsCurrent() {
			s.Error("not current although nothing was written")
		}
		s.run("-t", "nat", "-N", "OTHER")
		if s.IsCurrent() {
			s.Error("current although another program has added a chain")
		}
		if _, err := s.List(s.Context()); err != nil {
			s.Fatal(err)
		}
		if s.Hold(nil); s.IsCurrent() {
			s.Error("current without the lock")
		}
	})
}
