// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/cluster"
	"github.com/pointsman/pointsman/test/eventually"
)

// timeout limits each wait. It is long, because a test must not fail on a busy machine.
const timeout = 2 * time.Minute

// A contest is a cluster and the proxies that serve it. The answers of all other proxies are compared with those of the
// first, which is kube-proxy.
type contest struct {
	*objects
	proxies []*proxy
	again   time.Duration // how long a repeated question waits for an answer
	shown   map[int]bool  // lines of the table of differences
}

func newContest(t testing.TB, kinds ...kind) *contest {
	t.Helper()
	cluster.Need(t)
	api := cluster.Start(t, cluster.Options{})
	c := &contest{objects: newObjects(t, api), again: 1500 * time.Millisecond, shown: make(map[int]bool)}
	for _, k := range kinds {
		c.proxies = append(c.proxies, newProxy(t, k, api))
	}
	return c
}

func (c *contest) each(f func(*proxy)) {
	var all sync.WaitGroup
	for _, p := range c.proxies {
		all.Go(func() { f(p) })
	}
	all.Wait()
}

// settle waits until every proxy serves all Services that were written. It writes one more Service, which comes last.
func (c *contest) settle() {
	c.Helper()
	m := c.mark()
	c.each(func(p *proxy) {
		for _, to := range m.targets() {
			q := question{from: called("near0"), to: to}
			err := eventually.Try(timeout, func() error {
				if answer := p.call(c.Context(), q.from, to, time.Second); !strings.Contains(answer, " saw ") {
					return errors.New(answer)
				}
				return nil
			})
			if err != nil {
				c.Errorf("%s does not serve %s: %v; the end of its log:\n%s", p, to, err, p.lastOutput())
				return
			}
		}
	})
	if c.Failed() {
		c.FailNow()
	}
}

// compare calls every port from every caller, asks the extra questions, and reports differences that the table of
// differences does not explain.
func (c *contest) compare(things []thing, extra ...question) {
	c.Helper()
	c.settle()
	c.compareAnswers(append(questions(things), extra...))
}

func (c *contest) compareAnswers(list []question) {
	c.Helper()
	answers := c.ask(list, 6, 400*time.Millisecond)
	for range 2 { // ask again: a difference may be due to chance, a slow machine, or an update in progress
		var again []int
		for i := range list {
			if c.differs(list[i], answers, i) != "" {
				again = append(again, i)
			}
		}
		if len(again) == 0 {
			break
		}
		subset := make([]question, len(again))
		for k, i := range again {
			subset[k] = list[i]
		}
		fresh := c.ask(subset, 12, c.again)
		for k, i := range again {
			for p := range c.proxies {
				answers[p][i] = fresh[p][k]
			}
		}
	}
	c.report(list, answers)
}

func (c *contest) ask(list []question, thorough int, wait time.Duration) [][]answer {
	answers := make([][]answer, len(c.proxies))
	var all sync.WaitGroup
	for i, p := range c.proxies {
		all.Go(func() {
			answers[i] = askAll(context.WithoutCancel(c.Context()), p.world, list, thorough, wait)
		})
	}
	all.Wait()
	return answers
}

// differs describes the unexplained differences between the proxies' answers to question i. It returns "" if there are
// none.
func (c *contest) differs(q question, answers [][]answer, i int) string {
	var text []string
	for p := 1; p < len(c.proxies); p++ {
		theirs, ours := answers[0][i], answers[p][i]
		if alike(c.proxies[p].kind, q, theirs, ours) || explained(c.proxies[p], q, theirs, ours) != nil {
			continue
		}
		text = append(text, fmt.Sprintf("%s: %s", c.proxies[p], ours))
	}
	if len(text) == 0 {
		return ""
	}
	return fmt.Sprintf("%s\n\t%s: %s\n\t%s", q, c.proxies[0], answers[0][i], strings.Join(text, "\n\t"))
}

func (c *contest) report(list []question, answers [][]answer) {
	c.Helper()
	reasons := make(map[string]int)
	same := 0
	for i, q := range list {
		if text := c.differs(q, answers, i); text != "" {
			c.Errorf("%s", text)
		}
		for p := 1; p < len(c.proxies); p++ {
			theirs, ours := answers[0][i], answers[p][i]
			if alike(c.proxies[p].kind, q, theirs, ours) {
				same++
				continue
			}
			if d := explained(c.proxies[p], q, theirs, ours); d != nil {
				c.shown[d.line] = true
				reasons[c.proxies[p].label+": "+d.why]++
			}
		}
	}
	c.Logf("%d calls, %d equal answers", len(list), same)
	var lines []string
	for why, n := range reasons {
		lines = append(lines, fmt.Sprintf("%d differ: %s", n, why))
	}
	sort.Strings(lines)
	for _, line := range lines {
		c.Log(line)
	}
}

const pods = "clusterCIDR: 10.244.0.0/16,fd00:10:244::/48\n"

var detected = settings{label: "cluster CIDR", text: pods}

// TestKernelBeside compares Services of every kind, and then Services that change step by step.
func TestKernelBeside(t *testing.T) { newContest(t, kinds()...).run(t, detected) }

// TestKernelNftablesBeside does the same for mode nftables, compared with kube-proxy's mode of that name.
func TestKernelNftablesBeside(t *testing.T) {
	t.Parallel()
	newContest(t, theirNftables, ourNftables).run(t, settings{label: "node ports everywhere", text: pods, ports: []string{"0.0.0.0/0", "::/0"}})
}

func (c *contest) run(t *testing.T, s settings) {
	for _, p := range c.proxies {
		p.start(t, s)
	}
	t.Run("all kinds of Services", func(t *testing.T) {
		c := c.on(t)
		things := zoo()
		c.write(things)
		c.compare(things, callsBeyondServices(things)...)
	})
	t.Run("edge cases", func(t *testing.T) {
		c := c.on(t)
		things := edges()
		c.write(things)
		c.settle()
		from := append([]caller{called("client"), called("near0")}, callersAtEdges...)
		if long() {
			from = append(callers, callersAtEdges...)
		}
		all := calls(things, from...)
		c.compareAnswers(append(all, longDatagrams(calls(things[:4], from...))...))
	})
	c.sequence(t)
	t.Run("all differences occurred", c.allShown)
}

// TestKernelBesideAtRandom compares random Services, which change at random, with random settings of the proxies.
func TestKernelBesideAtRandom(t *testing.T) {
	atRandom(t, func(t testing.TB) *contest { return newContest(t, kinds()...) })
}

func atRandom(t *testing.T, newContest func(testing.TB) *contest) {
	if !long() {
		t.Skip("takes a minute for each round: POINTSMAN_SOAK=N runs N rounds")
	}
	c := newContest(t)
	seed := seed()
	t.Logf("POINTSMAN_SEED=%d", seed)
	for round := range rounds() {
		d := newDice(seed + uint64(round))
		s := manySettings[(seed+uint64(round))%uint64(len(manySettings))]
		t.Run(fmt.Sprint(seed+uint64(round), " ", s.label), func(t *testing.T) {
			c := c.on(t)
			for _, p := range c.proxies {
				p.stop()
				p.start(c.objects.root, s)
			}
			for range 3 {
				things := d.things(12)
				c.write(things)
				c.compare(things, callsBeyondServices(things)...)
			}
		})
	}
}

// manySettings are the settings of the proxies. Each random round uses the next element.
var manySettings = []settings{
	detected,
	{label: "pods unknown"},
	{label: "masquerade all", text: pods, iptables: ", masqueradeAll: true"},
	{label: "pods by interface", text: "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: near}\n"},
	{label: "pods by bridge", text: "detectLocalMode: BridgeInterface\ndetectLocal: {bridgeInterface: near0}\n"},
	{label: "pods by node", text: "detectLocalMode: NodeCIDR\n"},
	{label: "pods of one family", text: "clusterCIDR: 10.244.0.0/16\n"},
	{label: "some node ports", text: pods, ports: []string{"192.0.2.0/24", "2001:db8:2::/48"}},
	{label: "primary node ports", text: pods, ports: []string{"primary"}},
	{label: "no node ports", text: pods, ports: []string{"10.99.0.0/24", "fd99::/64"}},
	{label: "no loopback", text: pods, iptables: noLoopback},
	{label: "a firewall", text: pods, firewall: true},
	{label: "a firewall, another mark", text: "", iptables: ", masqueradeBit: 31", firewall: true},
	{label: "node ports of one family", text: pods, ports: []string{"192.0.2.0/24"}},
	{label: "node ports on loopback", text: pods, ports: []string{"127.0.0.0/8", "::1/128"}},
}

// kinds returns the proxies to compare: kube-proxy first, and those that POINTSMAN_BESIDE names.
func kinds() []kind {
	all := []kind{theirNft, theirLegacy, theirNftables, ourNft, ourLegacy, ourUserspace, ourSockets, ourNftables}
	names := os.Getenv("POINTSMAN_BESIDE")
	if names == "" {
		return []kind{theirNft, ourNft, ourLegacy, ourUserspace}
	}
	return append(all[:1:1], slices.DeleteFunc(all[1:], func(k kind) bool { return !slices.Contains(strings.Split(names, ","), k.label) })...)
}

func seed() uint64 {
	n, err := strconv.ParseUint(os.Getenv("POINTSMAN_SEED"), 10, 64)
	if err != nil {
		return uint64(time.Now().Unix())
	}
	return n
}

// rounds is 1, or the number that POINTSMAN_SOAK gives.
func rounds() int {
	n, err := strconv.Atoi(os.Getenv("POINTSMAN_SOAK"))
	if err != nil {
		return 1
	}
	return max(1, n)
}

// long reports whether a run may take long.
func long() bool { return os.Getenv("POINTSMAN_SOAK") != "" }

// on returns a copy of c for a subtest.
func (c *contest) on(t testing.TB) *contest {
	b := *c.objects
	b.TB = t
	return &contest{objects: &b, proxies: c.proxies, again: c.again, shown: c.shown}
}
