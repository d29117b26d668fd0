// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"sync"
	"time"
)

// An answer is what became of one request.
type answer struct {
	service      string
	from         string // the endpoint's name
	began, ended time.Time
	err          error // nil: it was answered
}

// A gap is the time in which nothing serves because the plugin was killed.
type gap struct {
	killed time.Time            // just before; zero: it was not
	gone   time.Time            // the process was seen to be gone
	back   map[string]time.Time // by Service: when the first request that was sent after that had its answer
}

// explains reports whether the gap is why a is a failure: it was in flight when
// the plugin was killed, or was sent before the Service was back.
func (g gap) explains(a answer) bool {
	if g.killed.IsZero() || a.ended.Before(g.killed) {
		return false
	}
	back, ok := g.back[a.service]
	return !ok || a.began.Before(back)
}

// A sum is what all requests so far came to.
type sum struct {
	requests int // but for those that the gap explains
	failed   []answer
	inFlight int                       // lost with the plugin
	refused  int                       // sent before it was back
	by       map[string]map[string]int // answers by Service and endpoint
}

// sumUp returns the sum of what was answered and what was not.
func sumUp(by map[string]map[string]int, failures []answer, g gap) sum {
	s := sum{by: make(map[string]map[string]int)}
	for svc, counts := range by {
		s.by[svc] = make(map[string]int)
		for from, n := range counts {
			s.by[svc][from] = n
			s.requests += n
		}
	}
	for _, a := range failures {
		switch {
		case !g.explains(a):
			s.failed = append(s.failed, a)
			s.requests++
		case a.began.Before(g.killed):
			s.inFlight++
		default:
			s.refused++
		}
	}
	return s
}

// minus returns what came after before.
func (s sum) minus(before sum) map[string]map[string]int {
	diff := make(map[string]map[string]int)
	for svc, counts := range s.by {
		diff[svc] = make(map[string]int)
		for from, n := range counts {
			diff[svc][from] = n - before.by[svc][from]
		}
	}
	return diff
}

// counts counts answers.
type counts struct {
	mu       sync.Mutex // guards what follows
	by       map[string]map[string]int
	lastFrom map[string]time.Time // by endpoint: when the last request began that it answered
	failures []answer
	gap      gap
}

func newCounts() *counts {
	return &counts{by: make(map[string]map[string]int), lastFrom: make(map[string]time.Time)}
}

func (t *counts) add(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.err != nil {
		t.failures = append(t.failures, a)
		return
	}
	if t.by[a.service] == nil {
		t.by[a.service] = make(map[string]int)
	}
	t.by[a.service][a.from]++
	if a.began.After(t.lastFrom[a.from]) {
		t.lastFrom[a.from] = a.began
	}
	if !t.gap.gone.IsZero() && a.began.After(t.gap.gone) {
		if first, ok := t.gap.back[a.service]; !ok || a.ended.Before(first) {
			t.gap.back[a.service] = a.ended
		}
	}
}

// killing notes that the plugin is killed now.
func (t *counts) killing(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gap = gap{killed: now, back: make(map[string]time.Time)}
}

// gone notes that its process is no more.
func (t *counts) gone(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gap.gone = now
}

// back returns since when all Services answer again, if they do.
func (t *counts) back() (time.Time, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var last time.Time
	for _, svc := range services() {
		at, ok := t.gap.back[svc.name]
		if !ok {
			return time.Time{}, false
		}
		if at.After(last) {
			last = at
		}
	}
	return last, true
}

// last returns when the last request began that an endpoint answered.
func (t *counts) last(endpoint string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lastFrom[endpoint]
}

func (t *counts) sum() sum {
	t.mu.Lock()
	defer t.mu.Unlock()
	return sumUp(t.by, t.failures, t.gap)
}
