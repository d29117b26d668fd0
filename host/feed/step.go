// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/pointsman/pointsman/host/pace"
	"github.com/pointsman/pointsman/sdk"
)

// step is one turn of the loop.
func (f *Feed) step(ctx context.Context) error {
	if _, err := f.Hold(ctx); err != nil {
		return nil // the feed is ending
	}
	defer f.Release()

	f.mu.Lock()
	periods := f.periods
	f.mu.Unlock()

	if f.owed.due(f.clock.Now(), periods.period) {
		f.owed.services = false
		f.cursor.Retry()
	}
	err := f.tell(ctx)
	if ctx.Err() != nil {
		return nil
	}
	idle := errors.Is(err, pace.ErrIdle)
	if !idle {
		f.owed.count(err)
	}
	if err := f.runner.SetGaps(periods.gaps(f.owed)); err != nil {
		return err
	}
	if err != nil && !idle && f.hooks.Failed != nil {
		f.hooks.Failed(err)
	}
	return err
}

// tell carries what the cursor has, if anything. A dataplane that has lost the
// thread gets everything at once.
func (f *Feed) tell(ctx context.Context) error {
	u, ok := f.cursor.Next()
	if !ok {
		return pace.ErrIdle
	}
	err := f.sync(ctx, u)
	if !errors.Is(err, sdk.ErrResync) {
		return err
	}
	f.cursor.Resync()
	if u, ok = f.cursor.Next(); !ok {
		return err
	}
	return f.sync(ctx, u)
}

// sync carries one update, and its answer back.
func (f *Feed) sync(ctx context.Context, u sdk.Update) error {
	if f.deadline > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.deadline)
		defer cancel()
	}
	start := f.clock.Now()
	result, err := f.dataplane.Sync(ctx, u)
	if err != nil {
		return fmt.Errorf("sync revision %d (%d set, %d deleted): %w", u.To, len(u.Set), len(u.Delete), err)
	}
	took := f.clock.Since(start)
	triggers := f.cursor.Ack(u.To, result.Failed)
	f.acked = u.To
	f.owed.failed(result.Failed, f.clock.Now())
	if f.hooks.Acked != nil {
		f.hooks.Acked(Acked{Update: u, Result: result, Took: took, Triggers: triggers})
	}
	if u.Full && len(u.Set) >= large {
		debug.FreeOSMemory() // reading and sending all that left more garbage than a day of changes will
	}
	return nil
}

// large is how many Services make a Full that is worth a collection of its own.
const large = 1000
