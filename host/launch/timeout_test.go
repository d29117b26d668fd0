// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// TestCounts tells time in which nothing happened from time in which nothing could.
func TestCounts(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		works      bool
		took       time.Duration
		this, that usage
		want       time.Duration
	}{
		"both sleep":                              {took: 50 * ms, want: 50 * ms},
		"both run":                                {took: 50 * ms, this: usage{ran: 5 * ms}, that: usage{ran: 50 * ms}, want: 50 * ms},
		"it runs, and what works is waited for":   {works: true, took: 50 * ms, that: usage{ran: 30 * ms, queued: 10 * ms}, want: 10 * ms},
		"this one runs, and it sleeps":            {works: true, took: 50 * ms, this: usage{ran: 50 * ms}, want: 50 * ms},
		"it waits for a processor":                {took: 50 * ms, that: usage{queued: 40 * ms}, want: 10 * ms},
		"many threads of it wait":                 {took: 50 * ms, that: usage{queued: 900 * ms}, want: 0},
		"this one waits for a processor":          {took: 50 * ms, this: usage{queued: 45 * ms}, want: 5 * ms},
		"the machine stood still":                 {took: 3000 * ms, want: 50 * ms},
		"a thread that had waited long is gone":   {took: 50 * ms, that: usage{queued: -900 * ms}, want: 50 * ms},
		"it waits, and this one is a little late": {took: 120 * ms, that: usage{queued: 20 * ms}, want: 100 * ms},
	} {
		got := Timeout{ExcuseRunning: c.works}.counts(c.took, make([]usage, 2), []usage{c.this, c.that})
		if got != c.want {
			t.Errorf("%s: %s count, want %s", name, got, c.want)
		}
	}
}

// TestTimeoutEnds: it is over in time, and its cause says so.
func TestTimeoutEnds(t *testing.T) {
	ctx, cancel := Timeout{Limit: 200 * time.Millisecond, Max: time.Minute}.Context(t.Context())
	defer cancel()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	ctx, cancel = Timeout{Limit: time.Hour}.Context(t.Context())
	cancel()
	if <-ctx.Done(); !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("it ended with %v", context.Cause(ctx))
	}
}

// TestLaunchWaitsForOneThatWorks: a plugin that is slow to start, or is hardly let run, has
// not come to a stop. One that sleeps has.
func TestLaunchWaitsForOneThatWorks(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("needs a kernel that counts how long threads run and wait: ", err)
	}
	c := part("works-first", shortDir(t))
	c.Timeout = 2 * time.Second
	r, err := Launch(soon(t), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(soon(t)); err != nil {
		t.Error(err)
	}
}

// work is what a plugin does that computes.
func work(long time.Duration) {
	for end := time.Now().Add(long); time.Now().Before(end); {
	}
}
