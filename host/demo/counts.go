// SPDX-License-Identifier: Apache-2.0

package demo

import "time"

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

// A sum is what requests came to.
type sum struct {
	requests int // but for those that the gap explains
	failed   []answer
	inFlight int            // lost with the plugin
	refused  int            // sent before it was back
	by       map[string]int // answers by endpoint
}

// sumUp returns the sum of what was answered and what was not.
func sumUp(answers []answer, g gap) sum {
	s := sum{by: make(map[string]int)}
	for _, a := range answers {
		switch {
		case a.err == nil:
			s.by[a.from]++
			s.requests++
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

func (l *load) add(a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
	if a.err == nil && !l.gap.gone.IsZero() && a.began.After(l.gap.gone) {
		if first, ok := l.gap.back[a.service]; !ok || a.ended.Before(first) {
			l.gap.back[a.service] = a.ended
		}
	}
}

// killing notes that the plugin is killed now.
func (l *load) killing(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap = gap{killed: now, back: make(map[string]time.Time)}
}

// gone notes that its process is no more.
func (l *load) gone(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gap.gone = now
}

// back returns since when all Services answer again, if they do.
func (l *load) back() (last time.Time, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.gap.back {
		if at.After(last) {
			last = at
		}
	}
	return last, len(l.gap.back) == len(services())
}

// last returns when the last request began that an endpoint answered.
func (l *load) last(endpoint string) (last time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.answers {
		if a.from == endpoint && a.err == nil && a.began.After(last) {
			last = a.began
		}
	}
	return last
}

// now returns how many answers there are so far, from which since counts.
func (l *load) now() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.answers)
}

// since returns what all requests came to that ended since then.
func (l *load) since(then int) sum {
	l.mu.Lock()
	defer l.mu.Unlock()
	return sumUp(l.answers[then:], l.gap)
}
