// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// A past is the connections that are kept, by the mode under which they began.
type past struct {
	*node
	kept map[string][]*kept
}

// remember opens a connection of every caller by every way.
func (p past) remember(mode string) {
	p.Helper()
	for _, c := range p.callers() {
		p.kept[mode] = append(p.kept[mode], p.keep(c))
	}
}

// lives has everybody say something.
func (p past) lives(when string) {
	p.Helper()
	for mode, all := range p.kept {
		for _, k := range all {
			if err := k.say(); err != nil {
				p.Errorf("%s, %s, begun under %s: %v", when, k.name, mode, err)
			}
		}
	}
}

// drains waits until mode does, and says how many connections of its own are left.
func (p past) drains(mode string) {
	p.Helper()
	want := len(p.kept[mode])
	p.until(fmt.Sprintf("%s drains, with %d connections", mode, want), long, func() error {
		m, err := p.Mode(p.Context())
		if err == nil && (m.Swap == nil || m.Swap.From != mode && m.Swap.To != mode || m.Swap.Stage != "draining" || m.Swap.Flows != want) {
			err = fmt.Errorf("mode %s, swap %+v", m.Mode, m.Swap)
		}
		return err
	})
}

// leaves hangs up for those of mode, which drains. It goes, and everybody else stays.
func (p past) leaves(mode string) {
	p.Helper()
	for _, k := range p.kept[mode] {
		_ = k.Close()
	}
	delete(p.kept, mode)
	other := map[string]string{"iptables": "userspace", "userspace": "iptables"}[mode]
	p.settled(other)
	p.traceless(mode)
	p.lives("when " + mode + " has gone")
}

// patientNode is one on which connections may take their time to end.
func patientNode(t *testing.T, mode, backend string) past {
	n := newNode(t, mode)
	n.drain, n.options = 10*time.Minute, "backend: "+backend
	n.mode(mode)
	n.start()
	n.answering()
	return past{n, make(map[string][]*kept)}
}

// TestKernelWantedBack swaps there and back, and again, while the one before still drains,
// at once or after a while. A client that is connected stays so, and the one that drains counts
// those that are its own.
func TestKernelWantedBack(t *testing.T) {
	for _, backend := range []string{"nft", "legacy"} {
		t.Run(backend, func(t *testing.T) {
			p := patientNode(t, "iptables", backend)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 14))
			modes := []string{"iptables", "userspace"}
			for i := range 2 * rounds() {
				from, to := modes[i%2], modes[(i+1)%2]
				if i < 4 || random.IntN(2) == 0 {
					p.remember(from)
				}
				p.swapTo(to)
				p.lives("as " + to + " serves")
				p.drains(from)
				time.Sleep(time.Duration(random.Int64N(int64(2 * time.Second))))
				p.lives("while " + from + " drains")
			}
			p.leaves("userspace")
		})
	}
}

// TestKernelUndoneWhileItDrains has a swap undone that goes back to the one that drains: it
// goes on draining, until its connections have ended.
func TestKernelUndoneWhileItDrains(t *testing.T) {
	for _, point := range []string{"verifying/check", "cutting/retire", "proving/prove"} {
		for mode, other := range map[string]string{"iptables": "userspace", "userspace": "iptables"} {
			t.Run(mode+"/"+point, func(t *testing.T) {
				p := patientNode(t, mode, "auto")
				p.remember(mode)
				p.swapTo(other)
				p.remember(other)
				p.drains(mode)
				if err := p.cmd.Process.Signal(syscall.SIGKILL); err != nil { // its plugins live on
					t.Fatal(err)
				}
				p.gone(long)
				p.start("POINTSMAN_FAIL=" + point + "=error")
				p.drains(mode)
				if out, err := p.verb("mode", "swap", mode, "--wait=20m"); err == nil {
					t.Fatalf("the swap was made: %s", out)
				}
				p.drains(mode)
				time.Sleep(time.Second)
				p.lives("after the swap back was undone")
				p.leaves(mode)
			})
		}
	}
}
