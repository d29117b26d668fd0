// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// silenceLimit is how long a process may leave heartbeats unanswered; three times as long if connections end with the
// process.
const silenceLimit = 10 * time.Second

// A Process is a configured process of a plugin. Its owner must call either Watch once, which
// also ends the process, or End.
type Process struct {
	*wire.Remote
	Description sdk.Description

	plugin Plugin
	child  *child // nil if something else runs it
}

// ErrRestart is in the error chain if a process ends because it will be restarted.
var ErrRestart = errors.New("restart requested")

// errHung is in the error chain if a process is killed because it does not answer.
var errHung = errors.New("it hangs")

// Watch sends a heartbeat each second until the process has ended or hangs, an error arrives
// from over, or ctx ends. Then it ends the process and returns the reason. Watch calls beat with
// each report; doubt is the reason why the process may be about to hang.
func (p *Process) Watch(ctx context.Context, over <-chan error, beat func(v wire.Vitals, doubt string)) error {
	why := p.heartbeats(ctx, over, beat)
	p.End(why)
	return why
}

// End ends a process that Start has started. For a process that something else runs, End closes
// the connection, and asks the process to end only for a restart.
func (p *Process) End(why error) {
	switch {
	case p.child != nil:
		p.child.stop(errors.Is(why, errHung))
	case errors.Is(why, ErrRestart):
		_ = p.Shutdown(context.Background()) // if it does not answer, the service manager or kubelet that runs it can end it
		waitClosed(time.Second, p.Exited())
	}
	_ = p.Close() // an error does not matter: the process has ended, or the connection is no longer needed
}

// closesWithin waits up to d until a channel is closed, and reports whether it was.
func waitClosed(d time.Duration, c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	case <-time.After(d):
		return false
	}
}

// heartbeats is like Watch, but does not end the process.
func (p *Process) heartbeats(ctx context.Context, over <-chan error, beat func(wire.Vitals, string)) error {
	type answer struct {
		vitals wire.Vitals
		took   time.Duration
		err    error
	}
	answers := make(chan answer, 1) // there is at most one request at a time
	asking, cancel := context.WithCancel(ctx)
	var asked sync.WaitGroup
	ask := func(after time.Duration) {
		asked.Go(func() { // ends with the answer or with asking
			select {
			case <-time.After(after):
			case <-asking.Done():
				return
			}
			began := time.Now()
			vitals, err := p.Vitals(asking)
			answers <- answer{vitals, time.Since(began), err}
		})
	}
	ask(0)
	defer asked.Wait()
	defer cancel()
	mayHang := p.plugin.Address != "" || p.plugin.Debug
	limit := silenceLimit
	if slices.Contains(p.Description.Limits, sdk.LimitDiesWithProcess) {
		limit *= 3
	}
	var last heartbeat
	var vitals wire.Vitals
	for heard := time.Now(); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.Exited():
			return errors.New(p.Ending())
		case <-p.Lost(): // a process closes its connection a moment before it ends
			if !waitClosed(time.Second, p.Exited()) {
				return errors.New("the connection to it was lost")
			}
		case why := <-over:
			return why
		case a := <-answers:
			hangs := ""
			switch {
			case a.err == nil:
				heard, vitals = time.Now(), a.vitals
				last, hangs = last.next(a.vitals, a.took)
			case time.Since(heard) >= limit:
				hangs = "does not answer: " + a.err.Error()
			}
			if hangs != "" && !mayHang {
				return fmt.Errorf("%w: %s", errHung, hangs)
			}
			if hangs == "" && a.err != nil {
				hangs = a.err.Error()
			}
			beat(vitals, hangs)
			ask(time.Second - a.took)
		}
	}
}
