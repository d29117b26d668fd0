// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestCounts tells time in which nothing happened from time in which nothing could.
func TestCounts(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct{ took, this, that, want time.Duration }{
		"both sleep":                            {took: 50 * ms, want: 50 * ms},
		"it waits for a processor":              {took: 50 * ms, that: 40 * ms, want: 10 * ms},
		"many threads of it wait":               {took: 50 * ms, that: 900 * ms, want: 0},
		"this one waits for a processor":        {took: 50 * ms, this: 45 * ms, want: 5 * ms},
		"the machine stood still":               {took: 3000 * ms, want: 50 * ms},
		"a thread that had waited long is gone": {took: 50 * ms, that: -900 * ms, want: 50 * ms},
		"it waits, and this one is a bit late":  {took: 120 * ms, that: 20 * ms, want: 100 * ms},
	} {
		if got := counts(c.took, make([]time.Duration, 2), []time.Duration{c.this, c.that}); got != c.want {
			t.Errorf("%s: %s count, want %s", name, got, c.want)
		}
	}
}

// TestPatienceEnds: it is over in time, and its cause says so.
func TestPatienceEnds(t *testing.T) {
	ctx, cancel := patience{limit: 200 * time.Millisecond}.context(t.Context())
	defer cancel()
	<-ctx.Done()
	if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("it ended with %v", err)
	}
	ctx, cancel = patience{limit: time.Hour}.context(t.Context())
	cancel()
	if <-ctx.Done(); !errors.Is(context.Cause(ctx), context.Canceled) {
		t.Errorf("it ended with %v", context.Cause(ctx))
	}
}
