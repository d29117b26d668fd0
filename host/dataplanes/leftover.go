// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/host/phrase"
	"github.com/pointsman/pointsman/host/swap"
)

// This file is about rules in the kernel that no dataplane in session keeps up to date:
// those of a mode that a swap could not clean up after, and those that go on serving while
// the mode in use does not.

const (
	retryFirst = 2 * time.Second // after a swap that was undone while From did not serve
	retryMost  = 5 * time.Minute // it doubles up to this
)

// A retry is a change of mode to try again, because the mode in use does not serve either.
type retry struct {
	to    string // empty: none
	tries int
	at    time.Time
}

// after is the retry that follows from the end of a swap.
func (r retry) after(o swap.Outcome, now time.Time) retry {
	if !o.Plan.FromDown || o.Err == "" || o.Err == byReset || o.Stays == o.Plan.To {
		return retry{}
	}
	if r.to != o.Plan.To {
		r = retry{to: o.Plan.To}
	}
	r.at = now.Add(min(retryFirst<<min(r.tries, 20), retryMost))
	r.tries++
	return r
}

// retryDue begins the change of mode that is to be tried again, once its time has come and
// if it is still wanted.
func (set *Set) retryDue(now time.Time) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.retry.to == "" || now.Before(set.retry.at) || set.owed != "" {
		return
	}
	if to := set.retry.to; to != set.main.name && set.noted.wanted(set.Now().Mode) == to {
		set.owed, set.retry.at = to, now.Add(retryMost) // the end of that swap sets the next time
		return
	}
	set.retry = retry{}
}

// noteLeft notes which mode the end of a swap leaves rules of in the kernel, and which it
// does not any more.
func (set *Set) noteLeft(o swap.Outcome) {
	if o.Plan.Same {
		return
	}
	gone := o.Plan.From
	if o.Stays == gone {
		gone = o.Plan.To
	}
	set.write(func(f *inForce) {
		f.Left = slices.DeleteFunc(slices.Clone(f.Left), func(mode string) bool { return mode == gone })
		if o.Remains != "" {
			f.Left = append(f.Left, o.Remains)
		}
	})
}

// cleanLeft begins to clean up what an earlier swap left in the kernel, once another mode
// serves and nothing else is to be done.
func (set *Set) cleanLeft(ctx context.Context, now time.Time) {
	main := set.serving()
	set.mu.Lock()
	busy := set.owed != "" || set.wanted != "" || now.Before(set.nextClean) || set.noted.wanted(set.Now().Mode) != main.name
	left := slices.Clone(set.noted.Left)
	set.mu.Unlock()
	if busy || !main.serves() || !main.whole() || set.runner.Machine().Stage != swap.Idle {
		return
	}
	i := slices.IndexFunc(left, func(mode string) bool { return mode != main.name && set.there(mode) })
	if i < 0 {
		return
	}
	set.mu.Lock()
	set.nextClean = now.Add(retryMost)
	set.mu.Unlock()
	if err := set.retire(ctx, left[i], main); err != nil {
		set.failed(swap.Clear, err)
	}
}

// retire has the runner drain and clean up what a mode left, beside main. Its process keeps
// the role that the kernel shows until main has passed the canary.
func (set *Set) retire(ctx context.Context, mode string, main *dataplane) error {
	if err := set.canary.begin(); err != nil {
		return err
	}
	d := set.newDataplane(mode, "")
	set.add(d)
	d.start(ctx)
	err := set.runner.Retire(swap.Plan{
		From: mode, To: main.name, ToSlot: main.slot, Why: "an earlier swap left rules of " + mode,
		Drain: set.Now().Swap.DrainTimeout, Leftover: true,
	}, d)
	if err != nil {
		d.Stop()
		set.dropped(d)
		set.canary.end()
	}
	return err
}

const (
	surveyLimit = 20 * time.Second // for one plugin to name what it would clean up
	surveyEach  = time.Minute
)

// surveys looks again and again until ctx ends.
func (set *Set) surveys(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			set.survey(ctx, now)
		}
	}
}

// survey looks for rules that go on serving while the mode in use does not, by asking each
// plugin's binary what it would clean up. While the mode in use serves there is nothing to
// look for.
func (set *Set) survey(ctx context.Context, now time.Time) {
	main := set.serving()
	set.mu.Lock()
	due := !now.Before(set.nextSurvey)
	set.mu.Unlock()
	if main.serves() {
		set.foundLeft(nil, time.Time{})
		return
	}
	if !due || main.supervisor.Status().Coming() {
		return
	}
	set.foundLeft(set.unattendedNow(ctx), now.Add(surveyEach))
}

// foundLeft notes what a survey found, and when the next one is due.
func (set *Set) foundLeft(unattended []string, next time.Time) {
	set.mu.Lock()
	defer set.mu.Unlock()
	set.unattended, set.nextSurvey = unattended, next
}

// unattendedNow names what each mode's plugin would clean up.
func (set *Set) unattendedNow(ctx context.Context) []string {
	var all []string
	for _, f := range Discover(set.Now()) {
		if f.Err != nil {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, surveyLimit)
		left, err := cleanupNames(limited, f.Path, set.Now().Plugins[f.Name].SHA256, "--kube-proxy")
		cancel()
		if err == nil && len(left) > 0 {
			all = append(all, fmt.Sprintf("%s: %s%s", f.Name, left[0], phrase.AndMore(len(left)-1)))
		}
	}
	return all
}

// Unattended names, by mode, what the kernel has and goes on serving by while the mode in
// use does not serve: nothing updates it.
func (set *Set) Unattended() []string {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Clone(set.unattended)
}

// cleanupNames are the things that a plugin's binary says it would remove.
func cleanupNames(ctx context.Context, path, sum string, flags ...string) ([]string, error) {
	printed, err := verb(ctx, path, sum, append([]string{"cleanup", "--dry-run"}, flags...)...)
	if err != nil {
		return nil, err
	}
	var left []string
	for line := range strings.Lines(string(printed)) {
		if what, ok := strings.CutPrefix(strings.TrimSpace(line), "would remove "); ok {
			left = append(left, what)
		}
	}
	return left, nil
}

// write changes what the next host must know, and writes it down if it is news.
func (set *Set) write(change func(*inForce)) {
	set.mu.Lock()
	next := set.noted
	change(&next)
	news := !next.equal(set.noted)
	set.noted = next
	set.mu.Unlock()
	if !news {
		return
	}
	if err := next.write(set.Begun.StateDir); err != nil {
		set.notWritten([]string{err.Error()}) // keepState tries it again
	}
}
