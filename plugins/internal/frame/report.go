// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A status is a report that is written by what holds the semaphore, and read beside it.
type status struct {
	// carries says that the process carries traffic too, so that what it works says
	// nothing of its calls.
	carries bool

	mu     sync.Mutex // guards what follows
	report sdk.Report
	noted  []string // the report's notes but for those of families

	// Those about kernel parameters, which only what holds the semaphore uses.
	parameters []string          // that another program changed
	unset      map[string]string // that could not be set, by path
}

// effort is so much use of the processor that a call gets on by it: planning for 10,000
// Services takes seconds on a busy node, and no step is done meanwhile. Answering the
// host takes a hundredth of it.
const effort = 50 * time.Millisecond

// present is a copy of it. Its Progress are steps, and what the process has worked: where
// rules are in the kernel, all that it works for is its calls.
func (s *status) present() sdk.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.report
	if !s.carries {
		r.Progress += uint64(used() / effort)
	}
	r.Samples, r.Histograms = slices.Clone(r.Samples), slices.Clone(r.Histograms)
	return r
}

func (s *status) tell(change func(*sdk.Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.report)
}

// step says that the present call goes on.
func (s *status) step() { s.tell(func(r *sdk.Report) { r.Progress++ }) }

// Report says how far the present call is. It waits for nothing.
func (d *Dataplane[P]) Report() sdk.Report { return d.status.present() }

// publish makes the metrics of all families those that Report has.
func (d *Dataplane[P]) publish() {
	var now sdk.Report
	for _, f := range d.families {
		f.Tell(&now)
		if _, ok := f.Family.(Tracked); !ok {
			continue
		}
		for _, of := range families {
			if f.Serves(of) {
				f.rounds[of].Tell(&now)
			}
		}
	}
	d.status.tell(func(r *sdk.Report) {
		r.Samples, r.Histograms, r.Notes = now.Samples, now.Histograms, slices.Concat(d.status.noted, d.status.parameters, slices.Sorted(maps.Values(d.status.unset)), now.Notes)
	})
}

// A Tally is what the kernel has counted of dropped packets when it was read last. Several goroutines may use it at once.
// The zero value has read nothing.
type Tally struct {
	mu   sync.Mutex // guards what follows
	last []sdk.Drops
	next time.Time
}

// Read has count read the counters of an IP family by reason, and returns those of both. It takes a hundredth of a
// processor at most: again before that, or where count fails, it returns those of the last time.
func (t *Tally) Read(count func(context.Context, sdk.Family) (map[string]uint64, error)) []sdk.Drops {
	t.mu.Lock()
	defer t.mu.Unlock()
	began := time.Now()
	if began.Before(t.next) {
		return t.last
	}
	ctx, cancel := context.WithTimeout(context.Background(), tallyTimeout)
	defer cancel()
	defer func() { t.next = began.Add(100 * time.Since(began)) }()
	var all []sdk.Drops
	for _, of := range families {
		counted, err := count(ctx, of)
		if err != nil {
			return t.last
		}
		for reason, n := range counted {
			all = append(all, sdk.Drops{Reason: reason, Family: of, Packets: n})
		}
	}
	t.last = all
	return all
}

// tallyTimeout is how long the kernel may take. A Report is asked for each second, and answered at once.
const tallyTimeout = 200 * time.Millisecond

// TellServed tells what is served, in order.
func TellServed(ctx context.Context, all []sdk.Served, tell func(sdk.Served) error) error {
	slices.SortFunc(all, func(a, b sdk.Served) int {
		return cmp.Or(a.Name.Compare(b.Name), a.Frontend.Compare(b.Frontend))
	})
	for _, served := range all {
		if err := errors.Join(ctx.Err(), tell(served)); err != nil {
			return err
		}
	}
	return nil
}

// Notes are what a report has of that name, by what they are about. The zero value has none. Several
// goroutines may use it at once.
type Notes struct {
	mu    sync.Mutex // guards about
	about map[string][]string
}

// Set says what is to be known about something, in place of what was said before.
func (n *Notes) Set(about string, now ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.about == nil {
		n.about = make(map[string][]string)
	}
	n.about[about] = now
}

// All are those about everything, in order, and none of them twice.
func (n *Notes) All() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(slices.Collect(maps.Values(n.about))...))))
}
