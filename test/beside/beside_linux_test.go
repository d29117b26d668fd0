// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sort"
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
	api     *cluster.Cluster
	proxies []*proxy
	again   time.Duration // how long a repeated question waits for an answer
	shown   map[int]bool  // lines of the table of differences
}

func newContest(t testing.TB, kinds ...kind) *contest {
	t.Helper()
	cluster.Need(t)
	api := cluster.Start(t, cluster.Options{Audit: true})
	c := &contest{objects: newObjects(t, api), api: api, again: 1500 * time.Millisecond, shown: make(map[int]bool)}
	for _, k := range kinds {
		c.proxies = append(c.proxies, newProxy(t, k, api, cluster.Token(cluster.Admin)))
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

// TestKernelBeside compares Services of every kind, and then Services that change step by step.
func TestKernelBeside(t *testing.T) { newContest(t, kinds()...).run(t) }

// TestKernelNftablesBeside does the same for mode nftables, compared with kube-proxy's mode of that name.
func TestKernelNftablesBeside(t *testing.T) {
	t.Parallel()
	newContest(t, theirNftables, ourNftables).run(t, "0.0.0.0/0", "::/0")
}

func (c *contest) run(t *testing.T, nodePortAddresses ...string) {
	for _, p := range c.proxies {
		p.start(t, nodePortAddresses...)
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
		all := calls(things, from...)
		c.compareAnswers(append(all, longDatagrams(calls(things[:4], from...))...))
	})
	c.sequence(t)
	t.Run("all differences occurred", c.allShown)
}

// kinds returns the proxies to compare: kube-proxy first, and those that POINTSMAN_BESIDE names.
func kinds() []kind {
	all := []kind{theirNft, theirLegacy, theirNftables, ourNft, ourLegacy, ourUserspace, ourSockets, ourNftables, ourIPVS}
	names := os.Getenv("POINTSMAN_BESIDE")
	if names == "" {
		return []kind{theirNft, ourNft, ourLegacy, ourUserspace}
	}
	return append(all[:1:1], slices.DeleteFunc(all[1:], func(k kind) bool { return !slices.Contains(strings.Split(names, ","), k.label) })...)
}

// on returns a copy of c for a subtest.
func (c *contest) on(t testing.TB) *contest {
	b := *c.objects
	b.TB = t
	return &contest{objects: &b, api: c.api, proxies: c.proxies, again: c.again, shown: c.shown}
}
