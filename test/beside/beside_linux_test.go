// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pointsman/pointsman/test/cluster"
)

// patience is for what must happen: long, for a loaded machine is no failure.
const patience = 2 * time.Minute

// A contest is one cluster and the proxies that serve it. The first is the one that
// the others are held against.
type contest struct {
	*book
	proxies []*proxy
}

func newContest(t testing.TB, kinds ...kind) *contest {
	t.Helper()
	need(t)
	api := cluster.Start(t, cluster.Options{})
	c := &contest{book: newBook(t, api)}
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

// settle waits until every proxy serves all that has been written.
func (c *contest) settle() {
	c.Helper()
	m := c.mark()
	c.each(func(p *proxy) {
		for _, to := range m.targets() {
			q := question{called("near0"), to}
			last := ""
			for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
				if last = p.call(c.Context(), q.from, to.network, to.addr, time.Second); strings.Contains(last, " saw ") {
					break
				}
				if time.Now().After(end) {
					c.Errorf("%s does not serve %s: %s; its last words:\n%s", p, to, last, p.words())
					return
				}
			}
		}
	})
	if c.Failed() {
		c.FailNow()
	}
}

// compare asks all, everywhere, and reports what differs without a reason.
func (c *contest) compare(things []thing) {
	c.Helper()
	c.settle()
	list := questions(things)
	answers := c.ask(list, nil, 6, 400*time.Millisecond)
	for range 2 { // chance, or a slow machine
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
		old := make([][]answer, len(c.proxies))
		for k, i := range again {
			subset[k] = list[i]
			for p := range c.proxies {
				old[p] = append(old[p], slices.DeleteFunc(slices.Clone(answers[p][i]), func(s string) bool { return s == dropped }))
			}
		}
		fresh := c.ask(subset, old, 12, 1500*time.Millisecond)
		for k, i := range again {
			for p := range c.proxies {
				answers[p][i] = fresh[p][k]
			}
		}
	}
	c.report(list, answers)
}

func (c *contest) ask(list []question, before [][]answer, thorough int, wait time.Duration) [][]answer {
	answers := make([][]answer, len(c.proxies))
	var all sync.WaitGroup
	for i, p := range c.proxies {
		all.Go(func() {
			var old []answer
			if before != nil {
				old = before[i]
			}
			answers[i] = askAll(context.WithoutCancel(c.Context()), p.world, list, old, thorough, wait)
		})
	}
	all.Wait()
	return answers
}

// differs is what is different about answer i, without a reason.
func (c *contest) differs(q question, answers [][]answer, i int) string {
	var text []string
	for p := 1; p < len(c.proxies); p++ {
		theirs, ours := answers[0][i], answers[p][i]
		if alike(q, theirs, ours) || explained(c.proxies[p].kind, q, theirs, ours) != "" {
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
			if alike(q, answers[0][i], answers[p][i]) {
				same++
			} else if why := explained(c.proxies[p].kind, q, answers[0][i], answers[p][i]); why != "" {
				reasons[c.proxies[p].label+": "+why]++
			}
		}
	}
	c.Logf("%d calls, %d alike", len(list), same)
	var lines []string
	for why, n := range reasons {
		lines = append(lines, fmt.Sprintf("%d differ: %s", n, why))
	}
	sort.Strings(lines)
	for _, line := range lines {
		c.Log(line)
	}
}

// A long run has all of both, and each mode of kube-proxy.
func TestBeside(t *testing.T) {
	c := newContest(t, theirNft, theirLegacy, theirNftables, ourNft, ourLegacy, ourUserspace)
	s := settings{"cluster CIDR", "clusterCIDR: 10.244.0.0/16,fd00:10:244::/48\n"}
	for _, p := range c.proxies {
		p.start(t, s)
	}
	things := zoo()
	c.write(things)
	c.compare(things)
}
