// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/test/apart"
)

// A point is a moment of a swap at which something fails.
type point struct {
	from, to string
	at       string // stage/action
	victim   string // host, signal (SIGTERM to the host), new, old, none: the action fails
}

func (p point) String() string {
	return fmt.Sprintf("%s-%s/%s/%s", p.from, p.to, strings.ReplaceAll(p.at, "/", "-"), p.victim)
}

// places are the points at which the course of a swap may change.
var places = []string{
	"preflight/launch", "staging/record", "staging/fill", "verifying/verify", "holding/freeze", "holding/hold",
	"cutting/promote", "cutting/retire", "cutting/release", "proving/prove", "draining/drain", "clearing/clear",
}

var pairs = [][2]string{
	{"iptables", "userspace"}, {"userspace", "iptables"},
	{"iptables", "nftables"}, {"nftables", "iptables"}, {"nftables", "userspace"}, {"userspace", "nftables"},
}

// points returns a sample that has every place and every victim. A seed picks the pair of modes.
func points(t *testing.T) (all []point) {
	seed := uint64(1) // the same each time: TestKernelSoak looks for rare failures
	if text := os.Getenv("POINTSMAN_SEED"); text != "" {
		seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("seed %d; POINTSMAN_SEED picks another", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	without, with := r.Perm(2), r.Perm(4) // nftables
	victims := []string{"host", "new", "old", "none"}
	for i, at := range places {
		pair := pairs[without[i/2%2]]
		if (i+int(seed%4))/2%2 == 1 { // each victim has pairs with nftables and others
			pair = pairs[2+with[i/2%4]]
		}
		all = append(all, point{pair[0], pair[1], at, victims[(i+int(seed%4))%4]})
	}
	shared := []string{"cutting/promote", "proving/prove"} // both of a new binary's processes have connections
	for _, at := range []string{shared[r.IntN(len(shared))], "draining/drain"} {
		all = append(all, point{"userspace", "userspace", at, "host"}, point{"nftables", "nftables", at, "host"})
	}
	return slices.DeleteFunc(all, func(p point) bool { return !p.possible() })
}

// possible reports whether a swap reaches the point. For a new binary nothing is verified before it writes, nor
// cleared, and only a relay drains; its two processes cannot be told apart from outside. A plugin that the host does
// not launch has no second process.
func (p point) possible() bool {
	if p.from != p.to {
		return !p.late() || p.victim != "none"
	}
	if apart.Asked() {
		return false
	}
	comes := []string{"preflight/launch", "staging/record", "cutting/promote", "proving/prove"}
	if p.from == "userspace" {
		comes = append(comes, "cutting/retire", "draining/drain")
	}
	return slices.Contains(comes, p.at) && (p.victim == "host" || p.victim == "none" && !p.late())
}

// late reports whether the swap has been decided at this point: what fails then is tried again for a minute, and
// changes nothing.
func (p point) late() bool { return strings.HasPrefix(p.at, "clearing") }

// TestKernelFaults lets something fail at each place of a swap, under load. Every other time the host runs apart from
// its plugins. The order changes after four points, which have all victims, so that each victim occurs both ways.
func TestKernelFaults(t *testing.T) {
	for i, p := range points(t) {
		begin := newNode
		if (i+i/4)%2 == 1 && p.from != p.to {
			begin = newApart
		}
		t.Run(p.String(), func(t *testing.T) { fault(begin(t, p.from), p) })
	}
}

// TestKernelSignals ends the host with a signal at each place of a swap, as an operator or systemd does. The host exits,
// and the next one makes the swap that was asked for.
func TestKernelSignals(t *testing.T) {
	for i, at := range places {
		p := point{pairs[i%len(pairs)][0], pairs[i%len(pairs)][1], at, "signal"}
		t.Run(p.String(), func(t *testing.T) { fault(newNode(t, p.from), p) })
	}
}

func fault(n *node, p point) {
	t := n.T
	n.configureDrain(p.from, p.at)
	how := map[string]string{"host": "kill", "none": "error"}[p.victim]
	if how == "" {
		how = "wait"
		n.write("gate", "")
	}
	n.start("POINTSMAN_FAIL="+p.at+"="+how, "POINTSMAN_FAIL_GATE="+n.path("gate"))
	l := n.newLoad()
	if _, err := n.SwapMode(t.Context(), admin.SwapAsk{To: p.to}); err != nil && p.victim != "host" { // it may be killed before it answers
		t.Fatal(err)
	}
	if p.late() { // the time limit ends draining connections, not the fault
		n.waitForDecision(l)
		l.done(p.String())
	}
	switch p.victim {
	case "host":
		if !n.waitForFailpointKill() {
			return
		}
		n.start()
	case "signal":
		n.waitAtFailpoint(p.at)
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		n.resume()
		n.waitForExit() // a plugin that waits for itself never ends
		n.start()
	case "new", "old":
		n.killVictim(p)
	}
	if !p.late() {
		n.waitForDecision(l)
		l.excuseRelay(p, n.kept == nil)
		l.done(p.String())
	}
	m := n.waitForRest()
	if (p.victim == "host" || p.victim == "signal") && m.Asked == p.to && m.Mode != p.to { // the next host starts again what it undid
		n.until(p.to+" serves, which was asked for", n.serves(p.to))
		m = n.waitForRest()
	}
	if m.Asked == p.to && m.Mode != p.to { // or the failing step would be tried again
		if out, err := n.verb("mode", "reset"); err != nil {
			t.Errorf("reset: %v: %s", err, out)
		}
		m = n.waitForRest()
	}
	t.Logf("%s serves; the swap ended with %+v", m.Mode, m.Last)
	n.expectOnly(m.Mode)
	n.expectListable()
	if m.Mode != p.from && m.Mode != p.to {
		t.Errorf("%s serves", m.Mode)
	}
	n.until("one plugin runs, or those that are another program's", func() error {
		if all := n.processes(); len(all) != max(1, len(n.kept)) {
			return fmt.Errorf("those that run: %v", all)
		}
		return nil
	})
}

// configureDrain starts a mode whose connections are ended soon when it drains, but not so soon that a drain could
// start before the host ends and be over before the next host is up.
func (n *node) configureDrain(mode, at string) {
	n.Helper()
	if n.drain = 3 * time.Second; strings.HasPrefix(at, "draining") {
		n.drain = 15 * time.Second
	}
	n.writeMode(mode)
}

// waitForFailpointKill waits until the host has ended at its failpoint, and reports whether it reached it.
func (n *node) waitForFailpointKill() bool {
	n.Helper()
	select {
	case <-n.exited:
		n.cmd = nil
		return true
	case <-time.After(long):
		n.Error("the host did not come to the failpoint")
		return false
	}
}

// killVictim kills a plugin while the swap waits at its failpoint.
func (n *node) killVictim(p point) {
	n.Helper()
	mode := p.to
	if p.victim == "old" {
		mode = p.from
	}
	n.waitAtFailpoint(p.at)
	if pid := n.plugin(mode); pid > 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	n.resume()
}

// startAt starts the host. Its next swap waits at a failpoint until resume.
func (n *node) startAt(point string) {
	n.Helper()
	n.write("gate", "")
	n.start("POINTSMAN_FAIL="+point+"=wait", "POINTSMAN_FAIL_GATE="+n.path("gate"))
}

// resume lets a swap continue that waits at a failpoint.
func (n *node) resume() {
	n.Helper()
	if err := os.Remove(n.path("gate")); err != nil {
		n.Fatal(err)
	}
}

// waitAtFailpoint waits until the swap waits at its failpoint.
func (n *node) waitAtFailpoint(at string) {
	n.Helper()
	n.until("the swap is at "+at, func() error {
		log, err := os.ReadFile(n.path("host.log"))
		if err == nil && !strings.Contains(string(log), "failpoint reached: "+at) {
			err = errors.New("not yet")
		}
		return err
	})
}

// excuseRelay ignores failures that nothing could prevent: of connections through a relay whose process was killed or
// ended with its host, and of new ones until its successor listens.
func (l *load) excuseRelay(p point, launched bool) {
	host := (p.victim == "host" || p.victim == "signal") && launched && (p.from == "userspace" || p.to == "userspace")
	relay := host || p.victim == "old" && p.from == "userspace" || p.victim == "new" && p.to == "userspace"
	if !relay {
		return
	}
	if failed := l.Sofar().Failed; len(failed) > 0 {
		l.t.Logf("a relay was killed: %d calls through it failed, the first: %s", len(failed), failed[0])
	}
	l.excused = true
}
