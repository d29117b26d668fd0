// SPDX-License-Identifier: Apache-2.0

package canary

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// patience is a limit on how long processes are waited for, in time that counts. Time in which this process, or one
// that is waited for, had to wait for a processor does not: on a busy machine, to give up on a process that is not
// run would help nothing.
type patience struct {
	limit time.Duration // of time that counts; six times as long in all
	pids  []int         // the processes that are waited for, besides this one
}

// look is how often time is counted. Only a process that is not run looks later than late.
const (
	look = 50 * time.Millisecond
	late = 4 * look
)

// context returns ctx until the time is over; its cause says so then. A goroutine counts the time until cancel is
// called.
func (p patience) context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with ctx
		defer cancel(nil)
		if err := p.wait(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// wait returns nil when ctx ends, and an error when the time is over.
func (p patience) wait(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	pids := append([]int{os.Getpid()}, p.pids...)
	before := queuedTimes(pids)
	began, last, counted := time.Now(), time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, after := time.Now(), queuedTimes(pids)
		counted += counts(now.Sub(last), before, after)
		last, before = now, after
		if all := now.Sub(began); counted >= p.limit || all >= 6*p.limit {
			return fmt.Errorf("no answer within %s, and %s in which there was no processor: %w", counted.Round(look), (all - counted).Round(look), context.DeadlineExceeded)
		}
	}
}

// queuedTimes returns for each process how long its threads have waited for a processor. It is zero where the kernel
// does not count that.
func queuedTimes(pids []int) []time.Duration {
	all := make([]time.Duration, len(pids))
	for i, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
		for _, thread := range threads {
			text, _ := os.ReadFile(thread)
			if fields := strings.Fields(string(text)); len(fields) > 1 { // else it ended just now
				n, _ := strconv.ParseInt(fields[1], 10, 64) // a number, from the kernel
				all[i] += time.Duration(n)
			}
		}
	}
	return all
}

// counts returns how much of took counts, by how long the processes had waited for a processor before and after it.
func counts(took time.Duration, before, after []time.Duration) time.Duration {
	excused := time.Duration(0)
	if took >= late {
		excused = took - look
	}
	for i := range before {
		excused = max(excused, after[i]-before[i])
	}
	return took - min(took, excused)
}
