// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A Timeout is a limit on how long processes are waited for, in time that counts. Time in
// which this process, or one that is waited for, had to wait for a processor does not: on a
// busy machine, giving up a process that is not let run would help nothing.
type Timeout struct {
	Limit time.Duration // of time that counts
	Max   time.Duration // of all time; zero: six times Limit
	PIDs  []int         // the processes that are waited for, besides this one

	// ExcuseRunning says that time in which they run does not count either: a process that
	// works has not come to a stop. Without it a busy loop uses the time up.
	ExcuseRunning bool
}

// look is how often time is counted. Only a process that is not run looks later than late.
const (
	look = 50 * time.Millisecond
	late = 4 * look
)

func (t Timeout) max() time.Duration { return cmp.Or(t.Max, 6*t.Limit) }

// Context returns ctx until the time is over; its cause says so then. A goroutine counts the
// time until cancel is called.
func (t Timeout) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with ctx
		defer cancel(nil)
		if err := t.wait(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// wait returns what ended it: that the time is over, or nil with ctx.
func (t Timeout) wait(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	pids := append([]int{os.Getpid()}, t.PIDs...)
	before := usageOf(pids)
	began, last, counted := time.Now(), time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, spent := time.Now(), usageOf(pids)
		counted += t.counts(now.Sub(last), before, spent)
		last, before = now, spent
		if all := now.Sub(began); counted >= t.Limit || all >= t.max() {
			return &timedOut{counted: counted, all: all}
		}
	}
}

// A usage is how long the threads of a process have run, and how long they could have and
// got no processor.
type usage struct{ ran, queued time.Duration }

func usageOf(pids []int) []usage {
	all := make([]usage, len(pids))
	for i, pid := range pids {
		all[i].ran, all[i].queued = CPUTime(pid)
	}
	return all
}

// CPUTime returns how long the threads of a process have run, and how long they waited for a
// processor. It is nothing where the kernel does not count that.
func CPUTime(pid int) (ran, queued time.Duration) {
	dir := fmt.Sprintf("/proc/%d/task", pid)
	threads, _ := os.ReadDir(dir)
	for _, thread := range threads {
		text, _ := os.ReadFile(filepath.Join(dir, thread.Name(), "schedstat"))
		if fields := strings.Fields(string(text)); len(fields) > 1 { // else it ended just now
			ran += nanoseconds(fields[0])
			queued += nanoseconds(fields[1])
		}
	}
	return ran, queued
}

func nanoseconds(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64) // a number, from the kernel
	return time.Duration(n)
}

// counts returns how much of took counts, by what the processes have spent before and after it.
// The first of them is this one, which always runs a little.
func (t Timeout) counts(took time.Duration, before, after []usage) time.Duration {
	excused := time.Duration(0)
	if took >= late {
		excused = took - look
	}
	for i := range before {
		unfit := after[i].queued - before[i].queued
		if t.ExcuseRunning && i > 0 {
			unfit += after[i].ran - before[i].ran
		}
		excused = max(excused, unfit)
	}
	return took - min(took, max(0, excused))
}

// A timedOut is the error that a Timeout is over.
type timedOut struct{ counted, all time.Duration }

func (e *timedOut) Error() string {
	return "no answer within " + e.counted.Round(time.Second).String() + e.excused()
}

// excused says how much time did not count, where it was a second or more.
func (e *timedOut) excused() string {
	excused := e.all - e.counted
	if excused < time.Second {
		return ""
	}
	return fmt.Sprintf(", and %s more in which it worked or there was no processor to be had", excused.Round(time.Second))
}

// Is makes it a deadline that passed, for errors.Is.
func (e *timedOut) Is(target error) bool { return target == context.DeadlineExceeded }
