// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk/sdktest"
)

// Callers of every kind: from outside, from a pod and from the node itself, of the ClusterIP
// and of the node port, in both families.
const everyWay = `Callers of every kind.
-- services --
ns1/web:http tcp
  cluster-ip 172.30.0.41:80
  cluster-ip [fd00:172:30::41]:80
  node-port  30080
  endpoint   10.180.0.1:8080 here
  endpoint   [fd00:10:180:1::1]:8080
-- packets --
10.180.0.9     > 172.30.0.41:80       = 10.180.0.1:8080
192.0.2.7      > 172.30.0.41:80       = 10.180.0.1:8080 masq
node           > 172.30.0.41:80       = 10.180.0.1:8080 masq
10.180.0.9     > node:30080           = 10.180.0.1:8080 masq
192.0.2.7      > node:30080           = 10.180.0.1:8080 masq
node           > node:30080           = 10.180.0.1:8080 masq
fd00:10:180::9 > [fd00:172:30::41]:80 = [fd00:10:180:1::1]:8080
2001:db8::7    > node:30080           = [fd00:10:180:1::1]:8080 masq
`

// From ipvs to another mode and back, and again, while the one before still drains: whoever
// is connected stays connected, and what drains says how many connections of its own are
// left. When they have ended it goes, whoever else is connected.
func TestKernelIPVSWantedBack(t *testing.T) {
	for _, other := range []string{"userspace", "iptables"} {
		t.Run(other, func(t *testing.T) {
			n := newNode(t)
			_, stage := n.shows("dual-stack")
			s, err := sdktest.Parse("every-way.txtar", []byte(everyWay))
			if err != nil {
				t.Fatal(err)
			}
			placed, _ := n.testbed.Place(s)
			n.start()
			n.packets(placed, stage)
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			w := &callers{node: n, s: placed, stage: stage, rand: rand.New(rand.NewPCG(seed, 14)), kept: make(map[string]map[sdktest.Flow]sdktest.Answer)}
			modes := []string{"ipvs", other}
			for i := range 2 * max(2, rounds()) {
				w.call(modes[i%2])
				w.swap(modes[i%2], modes[(i+1)%2])
			}
			w.leaves(other)
		})
	}
}

// Callers keep connections, by the mode under which they began.
type callers struct {
	*node
	s     sdktest.Scenario
	stage sdktest.Stage
	rand  *rand.Rand
	kept  map[string]map[sdktest.Flow]sdktest.Answer
}

// call opens a connection for each packet but for a few.
func (c *callers) call(mode string) {
	c.Helper()
	some := c.s
	some.Packets = nil
	for i, p := range c.s.Packets {
		if i == 0 || c.rand.IntN(4) > 0 {
			some.Packets = append(some.Packets, p)
		}
	}
	if c.kept[mode] == nil {
		c.kept[mode] = make(map[sdktest.Flow]sdktest.Answer)
	}
	for flow, a := range c.connect(some, c.stage) {
		c.kept[mode][flow] = a
	}
}

// swap changes the mode, at once or after a while, and looks after everybody.
func (c *callers) swap(from, to string) {
	c.Helper()
	time.Sleep(time.Duration(c.rand.Int64N(int64(3 * time.Second))))
	c.change(to)
	for _, kept := range c.kept {
		c.goOn(kept)
	}
	want := len(c.kept[from])
	c.until(fmt.Sprintf("%s drains, and has %d connections left", from, want), func() error {
		m, err := c.Mode(c.Context())
		if err == nil && (m.Swap == nil || m.Swap.From != from || m.Swap.Stage != "draining" || m.Swap.Flows != want) {
			err = fmt.Errorf("mode %s, swap %+v", m.Mode, m.Swap)
		}
		return err
	})
}

// leaves ends all connections of the mode that drains. It goes, and the others stay.
func (c *callers) leaves(mode string) {
	c.Helper()
	for flow := range c.kept[mode] {
		flow.Close()
	}
	delete(c.kept, mode)
	c.until(mode+" has gone", func() error {
		m, err := c.Mode(c.Context())
		if err == nil && m.Swap != nil {
			err = fmt.Errorf("swap %+v", m.Swap)
		}
		return err
	})
	for _, kept := range c.kept {
		c.goOn(kept)
		for flow := range kept {
			flow.Close()
		}
	}
	if m, err := c.Mode(c.Context()); err != nil || strings.Contains(m.Mode, mode) {
		c.Errorf("mode %s, %v", m.Mode, err)
	}
}
