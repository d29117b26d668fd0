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

// patience is a timeout that excludes time without CPU: time that this process, or one it waits
// for, spent waiting for a processor is not counted. Giving up on a process that does not get
// CPU time on a busy machine would not help.
type patience struct {
	limit time.Duration // of counted time; the total time may be six times as long
	pids  []int         // the processes we wait for, in addition to this one
}

// look is the interval of measuring. If a measurement comes later than late, this process did
// not get CPU time.
const (
	look = 50 * time.Millisecond
	late = 4 * look
)

// context returns ctx with the timeout; the cause of its end says so. A goroutine measures the
// time until cancel is called.
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

// wait returns nil when ctx ends, and an error when the timeout is over.
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

// queuedTimes returns for each process how long its threads have waited for a processor
// (/proc/PID/task/TID/schedstat), or zero if the kernel does not measure that.
func queuedTimes(pids []int) []time.Duration {
	all := make([]time.Duration, len(pids))
	for i, pid := range pids {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid)) // the pattern is valid
		for _, thread := range threads {
			text, _ := os.ReadFile(thread)
			if fields := strings.Fields(string(text)); len(fields) > 1 { // otherwise the thread has just ended
				n, _ := strconv.ParseInt(fields[1], 10, 64) // the kernel writes a number
				all[i] += time.Duration(n)
			}
		}
	}
	return all
}

// counts returns how much of took to count, given how long the processes had waited for a
// processor before and after it.
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
