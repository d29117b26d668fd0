// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"fmt"
	"os"
	"time"
)

// A Patience is a limit on what is waited for, in time that counts. Time in which this
// process, or those that are waited for, had to wait for a processor does not: to give up
// on what is not let run helps nothing.
type Patience struct {
	Limit time.Duration // of time that counts
	Most  time.Duration // of all time; zero: six times Limit
	PIDs  []int         // the processes that are waited for, besides this one

	// Works says that time in which they run does not count either: what works has not
	// come to a stop. Without it one that runs in circles has had its time.
	Works bool
}

// look is how often time is counted. Only a process that is not run looks later than late.
const (
	look = 50 * time.Millisecond
	late = 4 * look
)

func (p Patience) most() time.Duration {
	if p.Most > 0 {
		return p.Most
	}
	return 6 * p.Limit
}

// Context is ctx until the patience is over; its cause says so then. A goroutine counts
// the time until cancel is called.
func (p Patience) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { // ends with ctx
		defer cancel(nil)
		if err := p.wait(ctx); err != nil {
			cancel(err)
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// wait returns what ended it: that the patience is over, or nil with ctx.
func (p Patience) wait(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	pids := append([]int{os.Getpid()}, p.PIDs...)
	before := spentBy(pids)
	began, last, counted := time.Now(), time.Now(), time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, spent := time.Now(), spentBy(pids)
		counted += p.counts(now.Sub(last), before, spent)
		last, before = now, spent
		if all := now.Sub(began); counted >= p.Limit || all >= p.most() {
			return &outOfPatience{counted: counted, all: all}
		}
	}
}

// A usage is how long the threads of a process have run, and how long they could have and
// got no processor.
type usage struct{ ran, queued time.Duration }

func spentBy(pids []int) []usage {
	all := make([]usage, len(pids))
	for i, pid := range pids {
		all[i].ran, all[i].queued = Spent(pid)
	}
	return all
}

// counts is how much of took counts, by what the processes have spent before and after it.
// The first of them is this one, which always runs a little.
func (p Patience) counts(took time.Duration, before, after []usage) time.Duration {
	excused := time.Duration(0)
	if took >= late {
		excused = took - look
	}
	for i := range before {
		unfit := after[i].queued - before[i].queued
		if p.Works && i > 0 {
			unfit += after[i].ran - before[i].ran
		}
		excused = max(excused, unfit)
	}
	return took - min(took, max(0, excused))
}

// outOfPatience is that a Patience is over.
type outOfPatience struct{ counted, all time.Duration }

func (e *outOfPatience) Error() string {
	return "no answer within " + e.counted.Round(time.Second).String() + e.excused()
}

// excused tells of the time that did not count, if that is worth a word.
func (e *outOfPatience) excused() string {
	excused := e.all - e.counted
	if excused < time.Second {
		return ""
	}
	return fmt.Sprintf(", and %s more in which it worked or there was no processor to be had", excused.Round(time.Second))
}

// Is has it count as a deadline that passed.
func (e *outOfPatience) Is(target error) bool { return target == context.DeadlineExceeded }
