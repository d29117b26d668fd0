// SPDX-License-Identifier: Apache-2.0

package quarantine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pointsman/pointsman/host/report"
	"github.com/pointsman/pointsman/sdk"
)

func service(name string) sdk.Name {
	return sdk.Name{Namespace: "ns", Service: name, Protocol: sdk.TCP, Family: sdk.IPv4}
}

func services(names ...string) (all []sdk.Name) {
	for _, n := range names {
		all = append(all, service(n))
	}
	return all
}

func sorted(names []sdk.Name) []sdk.Name {
	slices.SortFunc(names, sdk.Name.Compare)
	return names
}

// A cluster has Services, some of which a plugin crashes on.
type cluster struct {
	mu      sync.Mutex // guards what follows
	values  map[sdk.Name]sdk.Service
	deadly  map[sdk.Name]bool
	broken  int // how many more tries fail for another reason
	tries   int
	changes int
	reasons []string
}

func newCluster(all []sdk.Name, deadly ...sdk.Name) *cluster {
	c := &cluster{values: make(map[sdk.Name]sdk.Service), deadly: make(map[sdk.Name]bool)}
	for _, n := range all {
		c.values[n] = sdk.Service{Name: n}
	}
	for _, n := range deadly {
		c.deadly[n] = true
	}
	return c
}

func (c *cluster) locked(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *cluster) quarantine() *Quarantine {
	return New(Settings{
		Plugin: "m",
		Report: func(e report.Event) { c.locked(func() { c.reasons = append(c.reasons, e.Reason) }) },
		Value: func(n sdk.Name) (v sdk.Service, ok bool) {
			c.locked(func() { v, ok = c.values[n] })
			return v, ok
		},
		Ready: func(ctx context.Context) error { return ctx.Err() },
		Try: func(_ context.Context, group []sdk.Name) (crashed bool, err error) {
			c.locked(func() {
				if c.tries++; c.broken > 0 {
					c.broken, err = c.broken-1, errors.New("no memory")
					return
				}
				crashed = slices.ContainsFunc(group, func(n sdk.Name) bool { return c.deadly[n] })
			})
			return crashed, err
		},
		Changed: func() { c.locked(func() { c.changes++ }) },
	})
}

// TestSuspects are those that a process was updated with at each of its crashes, once it
// has crashed twice during an update.
func TestSuspects(t *testing.T) {
	for name, c := range map[string]struct {
		life func(*Quarantine)
		want []sdk.Name // of the next crash, while it is updated with b and c
	}{
		"crashed once on more":            {func(q *Quarantine) { q.updating(services("a", "b")); q.suspects() }, services("b")},
		"never crashed":                   {func(*Quarantine) {}, nil},
		"crashed on something else":       {func(q *Quarantine) { q.updating(services("a")); q.suspects() }, nil},
		"crashed on this only lately":     {func(q *Quarantine) { q.updating(services("a")); q.suspects(); q.updating(services("c")); q.suspects() }, services("c")},
		"crashed during no update":        {func(q *Quarantine) { q.suspects() }, nil},
		"lived in between":                {func(q *Quarantine) { q.updating(services("b")); q.suspects(); q.updating(services("b")); q.updated() }, nil},
		"crashes during a bisection":      {func(q *Quarantine) { q.bisecting, q.crashes, q.common = true, 2, services("b") }, nil},
		"was updated with them and lived": {func(q *Quarantine) { q.updating(services("b")); q.updated(); q.suspects() }, nil},
	} {
		q := newCluster(nil).quarantine()
		c.life(q)
		q.updating(services("b", "c"))
		if got := q.suspects(); !slices.Equal(got, c.want) || q.bisecting != (c.want != nil || name == "crashes during a bisection") {
			t.Errorf("one that %s: suspects %v, bisecting %t, want %v", name, got, q.bisecting, c.want)
		}
	}
}

// TestReleased are those that changed, or are gone, but not during a bisection.
func TestReleased(t *testing.T) {
	c := newCluster(services("same", "other", "gone"))
	q := c.quarantine()
	q.hold(services("same", "other", "gone", "never"))
	c.values[service("other")] = sdk.Service{Cluster: []sdk.Endpoint{{OnNode: true}}}
	delete(c.values, service("gone"))
	q.bisecting = true
	if released := q.release(); released != nil || len(q.Names()) != 3 {
		t.Errorf("during the bisection %v are released of %v", released, q.Names())
	}
	q.bisecting = false
	if released := sorted(q.release()); !slices.Equal(released, services("gone", "other")) || !slices.Equal(q.Names(), services("same")) {
		t.Errorf("%v are released, and %v stay", released, q.Names())
	}
}

// A process crashes on what is deadly.
type process struct{ *cluster }

func (p process) Sync(_ context.Context, u sdk.Update) (sdk.Result, error) {
	for i := range u.Set {
		if p.deadly[u.Set[i].Name] {
			return sdk.Result{}, errors.New("the connection is closed")
		}
	}
	return sdk.Result{}, nil
}

// crash has the process be updated with all Services until it has crashed so often.
func (c *cluster) crash(q *Quarantine, times int) {
	var u sdk.Update
	for n := range c.values {
		if !slices.Contains(q.Names(), n) {
			u.Set = append(u.Set, sdk.Service{Name: n})
		}
	}
	for range times {
		if _, err := q.Watch(process{c}).Sync(context.Background(), u); err != nil {
			q.Crashed()
		}
	}
}

// TestFindsTheCulprit: a plugin that crashes on one Service of ten lives without all ten
// until that one is found, then without that one, and with it once it has changed.
func TestFindsTheCulprit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := services("a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
		c := newCluster(all, service("d"))
		c.broken = 1
		q := c.quarantine()
		c.crash(q, 2)
		if got := sorted(q.Names()); !slices.Equal(got, all) {
			t.Errorf("after two crashes quarantined: %v, want all", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		time.Sleep(tryAgain + recheckEach)
		synctest.Wait()
		if got := q.Names(); !slices.Equal(got, services("d")) {
			t.Errorf("after the bisection quarantined: %v, want d alone", got)
		}
		c.locked(func() { c.values[service("d")] = sdk.Service{Affinity: time.Second} })
		time.Sleep(2 * recheckEach)
		synctest.Wait()
		if got := q.Names(); len(got) != 0 {
			t.Errorf("it changed, and is quarantined still: %v", got)
		}
		cancel()
		running.Wait()
		want := []string{report.PluginCrashedTwice, report.PluginNote, report.ServiceQuarantined, report.ServiceReleased}
		if !slices.Equal(c.reasons, want) || c.changes != 2 {
			t.Errorf("reports %v and %d changes, want %v and 2", c.reasons, c.changes, want)
		}
	})
}

// TestNoCulprit: where no group crashes an instance, all are served again, and it is said.
func TestNoCulprit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(services("a", "b"), service("a"))
		q := c.quarantine()
		c.crash(q, 2)
		c.locked(func() { clear(c.deadly) })
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { q.Run(ctx) })
		synctest.Wait()
		cancel()
		running.Wait()
		if want := []string{report.PluginCrashedTwice, report.PluginNote}; len(q.Names()) != 0 || !slices.Equal(c.reasons, want) {
			t.Errorf("quarantined: %v, reports %v, want %v", q.Names(), c.reasons, want)
		}
	})
}

// TestSecondCulprit leaves the first in quarantine.
func TestSecondCulprit(t *testing.T) {
	c := newCluster(services("a", "b"), service("b"))
	q := c.quarantine()
	q.hold(services("a"))
	c.crash(q, 2)
	if got := sorted(q.Names()); !slices.Equal(got, services("a", "b")) {
		t.Errorf("quarantined: %v, want a and b", got)
	}
}

// TestEnds: a bisection ends with its context, and what it suspects stays in quarantine.
func TestEnds(t *testing.T) {
	c := newCluster(services("a", "b"), service("b"))
	q := c.quarantine()
	c.crash(q, 2)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	q.Run(ctx)
	if got := sorted(q.Names()); !slices.Equal(got, services("a", "b")) || c.tries > 0 {
		t.Errorf("quarantined: %v after %d tries, want both and none", got, c.tries)
	}
}

// TestBisect finds every culprit, nothing else, and soon.
func TestBisect(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		names := make([]sdk.Name, 1+r.IntN(10000))
		for i := range names {
			names[i] = sdk.Name{Service: fmt.Sprint(i)}
		}
		deadly := make(map[sdk.Name]bool)
		for range r.IntN(4) {
			deadly[names[r.IntN(len(names))]] = true
		}
		tries := 0
		b := bisect(names)
		for group := b.next(); group != nil; group = b.next() {
			tries++
			b = b.tried(slices.ContainsFunc(group, func(n sdk.Name) bool { return deadly[n] }))
		}
		if len(b.culprits) != len(deadly) {
			t.Fatalf("seed %d: found %v, want %v", seed, b.culprits, deadly)
		}
		for _, n := range b.culprits {
			if !deadly[n] {
				t.Fatalf("seed %d: nothing crashes on %s", seed, n)
			}
		}
		if most := 2 + len(deadly)*2*15; tries > most {
			t.Errorf("seed %d: %d tries for %d among %d, want %d at the most", seed, tries, len(deadly), len(names), most)
		}
	}
}
