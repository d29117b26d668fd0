// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// keptConnections holds kept connections, by the mode under which they were opened.
type keptConnections struct {
	*node
	kept map[string][]*kept
}

// connect opens a connection from every caller to every address.
func (p keptConnections) connect(mode string) {
	p.Helper()
	for _, c := range p.callers() {
		p.kept[mode] = append(p.kept[mode], p.keep(c))
	}
}

// expectAnswers calls on every kept connection.
func (p keptConnections) expectAnswers(when string) {
	p.Helper()
	for mode, all := range p.kept {
		for _, k := range all {
			if err := k.say(); err != nil {
				p.Errorf("%s, %s, begun under %s: %v", when, k.name, mode, err)
			}
		}
	}
}

// expectDraining waits until mode drains and reports the number of its connections. If both modes serve by rules, the
// kernel does not tell which of them translated a connection, so the number may include older connections.
func (p keptConnections) expectDraining(mode string) {
	p.Helper()
	want, most := len(p.kept[mode]), len(p.kept[mode])
	if p.kept["userspace"] == nil {
		for other, kept := range p.kept {
			if other != mode {
				most += len(kept)
			}
		}
	}
	p.until(fmt.Sprintf("%s drains, with %d connections", mode, want), func() error {
		m, err := p.Mode(p.Context())
		if err == nil && (m.Swap == nil || m.Swap.From != mode && m.Swap.To != mode || m.Swap.Stage != "draining" || m.Swap.Flows < want || m.Swap.Flows > most) {
			err = fmt.Errorf("mode %s, swap %+v", m.Mode, m.Swap)
		}
		return err
	})
}

// hangUp closes the connections of mode, which drains while other serves. The mode is removed, and all other
// connections stay.
func (p keptConnections) hangUp(mode, other string) {
	p.Helper()
	for _, k := range p.kept[mode] {
		_ = k.Close()
	}
	delete(p.kept, mode)
	if mode != "userspace" && other != "userspace" { // its number may include these
		for _, k := range p.kept[other] {
			_ = k.Close()
		}
		delete(p.kept, other)
	}
	p.waitForMode(other)
	p.expectNothingLeft(mode)
	p.expectAnswers("when " + mode + " has gone")
}

// newPatientNode starts a node on which draining may take long.
func newPatientNode(n *node, mode, backend string) keptConnections {
	n.drain, n.options = 10*time.Minute, "backend: "+backend
	n.writeMode(mode)
	n.start()
	n.waitForAnswers()
	return keptConnections{n, make(map[string][]*kept)}
}

// TestKernelWantedBack swaps back to a mode that still drains, twice. No client loses its connection, and a mode that
// drains counts its own connections.
func TestKernelWantedBack(t *testing.T) {
	for _, c := range []pair{
		{"iptables", "userspace", "nft"}, {"iptables", "userspace", "legacy"},
		{"iptables", "nftables", "legacy"}, {"userspace", "nftables", "auto"},
	} {
		t.Run(c.String(), func(t *testing.T) {
			p := newPatientNode(newNode(t, c.from), c.from, c.options)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 14))
			for i := range 2 * rounds() {
				from, to := c.from, c.to
				if i%2 == 1 {
					from, to = to, from
				}
				if i < 4 || random.IntN(2) == 0 {
					p.connect(from)
				}
				p.swapTo(to)
				p.expectAnswers("as " + to + " serves")
				p.expectDraining(from)
				p.expectAnswers("while " + from + " drains")
			}
			p.hangUp(c.to, c.from)
		})
	}
}

// TestKernelUndoneWhileItDrains undoes a swap back to a mode that drains: it continues to drain until its connections
// have ended.
func TestKernelUndoneWhileItDrains(t *testing.T) {
	for i, c := range []pair{
		{"iptables", "userspace", ""}, {"userspace", "iptables", ""}, {"iptables", "nftables", ""}, {"nftables", "iptables", ""}, {"nftables", "userspace", ""},
	} {
		points := []string{"verifying/check", "cutting/retire", "proving/prove"}
		if i > 1 {
			points = points[i-2 : i-1]
		}
		for _, point := range points {
			mode, other := c.from, c.to
			t.Run(c.String()+"/"+point, func(t *testing.T) {
				p := newPatientNode(newApart(t, mode), mode, "auto") // a launched relay ends with its host
				p.connect(mode)
				p.swapTo(other)
				p.connect(other)
				p.expectDraining(mode)
				p.end(syscall.SIGKILL)
				p.start("POINTSMAN_FAIL=" + point + "=error")
				p.expectDraining(mode)
				if out, err := p.verb("mode", "swap", mode, "--wait=20m"); err == nil {
					t.Fatalf("the swap was made: %s", out)
				}
				p.expectDraining(mode)
				p.expectAnswers("after the swap back was undone")
				p.hangUp(mode, other)
			})
		}
	}
}
