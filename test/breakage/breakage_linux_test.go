// SPDX-License-Identifier: Apache-2.0

package breakage

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/traffic"
)

// A fault is one way to break a node.
type fault struct {
	name string
	mode string           // that it is about; empty: any
	can  func(*node) bool // there is something to break now; nil: always
	do   func(*node)      // breaks it, holds the reports to it, and undoes it
}

// TestKernelBreakage breaks a node with each of iptables' backends. Without a soak it has
// the time of a few faults, and always the same ones: what fails now and then is for a
// soak.
func TestKernelBreakage(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			if _, err := exec.LookPath("iptables-" + backend + "-save"); err != nil {
				t.Skip(err)
			}
			breakage(t, backend, seed(t))
		})
	}
}

// TestKernelIPVSBreakage does so under a kernel that has IPVS, in all three modes.
func TestKernelIPVSBreakage(t *testing.T) {
	if _, err := os.Stat("/proc/sys/net/ipv4/vs"); err != nil {
		t.Skip("needs a kernel with IPVS: make test-ipvs brings one")
	}
	if rounds() == 0 {
		t.Skip("takes some minutes in a guest: make soak has it")
	}
	breakage(t, "legacy", seed(t))
}

// rounds is how often each fault comes: zero without a soak, where time is short.
func rounds() int {
	n, _ := strconv.Atoi(os.Getenv("POINTSMAN_SOAK"))
	return n
}

func seed(t *testing.T) uint64 {
	t.Helper()
	if n, err := strconv.ParseUint(os.Getenv("POINTSMAN_SEED"), 10, 64); err == nil {
		return n
	}
	if rounds() > 0 {
		return uint64(time.Now().UnixNano())
	}
	return 1
}

// brief is how long faults go on without a soak.
const brief = 15 * time.Second

// guest reports whether this kernel is taken to be user-mode Linux's, which takes seconds
// to start a program.
func (n *node) guest() bool {
	return n.here.Do(func() error { _, err := os.Stat("/proc/sys/net/ipv4/vs"); return err }) == nil
}

func breakage(t *testing.T, backend string, seed uint64) {
	t.Logf("POINTSMAN_SEED=%d", seed)
	r := rand.New(rand.NewPCG(seed, uint64(len(backend)))) // another sequence for each
	n := newNode(t, backend, "iptables", r)
	n.configure(n.modes()[r.IntN(len(n.modes()))])
	n.churn(12)
	n.begin()
	n.settle()
	n.call()
	for range max(1, rounds()) {
		n.round(seed)
	}
	n.finish()
}

// round has every fault once, in a random order. Without a soak, and if none are asked
// for, it ends when its time is over.
func (n *node) round(seed uint64) {
	n.Helper()
	asked := os.Getenv("POINTSMAN_FAULTS")
	wanted := regexp.MustCompile(asked)
	for _, i := range n.Perm(len(faults)) {
		if !wanted.MatchString(faults[i].name) {
			continue
		}
		if rounds() == 0 && asked == "" && time.Since(n.began) > brief {
			return
		}
		n.breaks(faults[i])
		if n.Failed() {
			n.Fatalf("POINTSMAN_SEED=%d: after %s, no more", seed, faults[i].name)
		}
	}
}

// breaks has one fault, and before it, now and then, changes of Services and of the mode.
func (n *node) breaks(f fault) {
	n.Helper()
	if f.mode != "" && !slices.Contains(n.modes(), f.mode) {
		return
	}
	if n.IntN(2) == 0 {
		n.churn(1 + n.IntN(6))
	}
	switch {
	case f.mode != "" && f.mode != n.mode:
		n.swap(f.mode)
		n.settle()
	case f.mode == "" && n.IntN(3) == 0:
		n.swap(n.other())
		n.settle()
	}
	if f.can != nil && !f.can(n) {
		return
	}
	n.step("%s, mode %s", f.name, n.mode)
	f.do(n)
	n.settle()
	n.fine()
}

// step notes what is about to be done.
func (n *node) step(format string, args ...any) {
	n.Helper()
	text := fmt.Sprintf("%6.1f s  ", time.Since(n.began).Seconds()) + fmt.Sprintf(format, args...)
	n.sequence = append(n.sequence, text)
	n.Log(text)
}

// other is a mode that does not serve.
func (n *node) other() string {
	all := slices.DeleteFunc(slices.Clone(n.modes()), func(m string) bool { return m == n.mode })
	return all[n.IntN(len(all))]
}

// swap changes the mode: in the file, which the host follows.
func (n *node) swap(to string) {
	n.Helper()
	n.step("swap from %s to %s", n.mode, to)
	n.configure(to)
	n.until(to+" serves", long, func() error {
		m, err := n.Mode(context.Background())
		if err == nil && (m.Mode != to || m.Swap != nil && !m.Swap.Moved()) {
			err = fmt.Errorf("mode %s, swap %+v, last %+v", m.Mode, m.Swap, m.Last)
		}
		return err
	})
}

// call has callers call until the end: new connections, and such as live for a moment, so
// that what drains has an end.
func (n *node) call() {
	n.Helper()
	for _, c := range n.callers() {
		n.until(c.Name+" is answered at "+c.To.String(), long, func() error { return c.Try(context.Background()) })
	}
	lives := func() time.Duration { return 500*time.Millisecond + rand.N(2*time.Second) }
	plan := traffic.Plan{New: 1, Every: 25 * time.Millisecond, Keep: 3, Lives: lives}
	if n.guest() {
		plan.Every, plan.Keep = 400*time.Millisecond, 1
	}
	n.load = traffic.Start(plan, n.callers()...)
}

// A window is a time in which a relay's process, or what leads to a Service, was gone by
// our doing.
type window struct {
	from, to time.Time
	kept     bool // it relayed only what it had before: another mode served
}

func (w window) String() string { return fmt.Sprintf("%s to %s, kept alone: %v", w.from, w.to, w.kept) }

// relayGone begins one.
func (n *node) relayGone() {
	m, err := n.Mode(context.Background())
	n.relayed = append(n.relayed, window{from: time.Now(), kept: err == nil && m.Mode != "userspace" && (m.Swap == nil || m.Swap.Moved())})
}

// cut begins one in which every call may fail.
func (n *node) cut() { n.relayed = append(n.relayed, window{from: time.Now()}) }

// relayBack ends those that have begun: all is served again.
func (n *node) relayBack() {
	for i := range n.relayed {
		if n.relayed[i].to.IsZero() {
			n.relayed[i].to = time.Now()
		}
	}
}

// excused reports whether a call failed with a relay that was gone.
func (n *node) excused(f traffic.Failure) bool {
	return slices.ContainsFunc(n.relayed, func(w window) bool {
		to := w.to
		if to.IsZero() {
			to = time.Now()
		}
		meets := f.Began.Before(to) && f.At.After(w.from.Add(-100*time.Millisecond))
		return meets && (!w.kept || !f.New)
	})
}

// fine holds the calls so far to having failed only where they may.
func (n *node) fine() {
	n.Helper()
	bad := 0
	for _, f := range n.load.Sofar().Failed {
		if n.excused(f) {
			continue
		}
		if bad++; bad <= 10 {
			n.Errorf("%s (%s)", f, f.At.Format(time.RFC3339Nano))
		}
	}
	if bad > 10 {
		n.Errorf("… and %d more", bad-10)
	}
}

// kill sends a mode's plugin a signal.
func (n *node) kill(mode string, sig syscall.Signal) {
	n.Helper()
	for _, pid := range n.plugins(mode) {
		if mode == "userspace" {
			n.relayGone()
		}
		_ = syscall.Kill(pid, sig)
	}
}

// finish ends the callers and the host, and holds what is left to what a fresh node has.
func (n *node) finish() {
	n.Helper()
	n.churn(3)
	n.settle()
	n.fine()
	counts := n.load.End()
	n.Logf("%d new connections, %d answers on kept ones, %d failures that a relay's end excuses",
		counts.New, counts.Kept, len(counts.Failed))
	if n.Failed() {
		return
	}
	fresh := n.fresh()
	if text := fresh.rules.differs(n.dump()); text != "" {
		n.Errorf("the rules are not those of a fresh host:\n%s", text)
	}
	n.descriptors(fresh)
	n.end(syscall.SIGINT)
	n.until("no process is left", 10*time.Second, n.alone)
	if out, err := n.verb("cleanup"); err != nil {
		n.Errorf("cleanup: %v: %s", err, out)
	}
	if text := n.before.differs(n.dump()); text != "" {
		n.Errorf("not what was there before any host:\n%s", text)
	}
	n.until("no process is left", 10*time.Second, n.alone)
	n.files()
}

// alone reports the processes that are left on the node.
func (n *node) alone() error {
	if left := n.processes(); len(left) > 0 {
		return fmt.Errorf("%v", left)
	}
	return nil
}

// files holds what the host wrote down to having no socket, and nothing half-written.
func (n *node) files() {
	n.Helper()
	out, err := n.run("find", n.dir, "-type", "s", "-o", "-name", "*.new", "-o", "-name", "plugin-dir*")
	if err != nil || out != "" {
		n.Errorf("files that are left: %v\n%s", err, out)
	}
}
