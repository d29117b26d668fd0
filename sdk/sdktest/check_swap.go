// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// inspectsInStandby: before a swap the host compares what the dataplane that is to serve names in
// Standby with what it was sent, and goes on only if they are the same. What dies with its process
// names it from memory, for there is nothing in the kernel yet.
func inspectsInStandby(t *trial) {
	s := t.scenario("cluster-ip")
	t.role(sdk.Standby)
	t.sync(s.Update(0))
	t.during("Inspect in Standby, which is to name what Active would serve")
	if _, err := t.inspect(); errors.Is(err, wire.ErrUnsupported) {
		t.fail(excused{"it has no Inspect, so a host swaps to it unverified, and says so in an event"})
	}
	t.serves(s)
	t.role(sdk.Active)
	t.role(sdk.Standby)
	t.during("Inspect in Standby, after Active")
	t.serves(s)
}

// swapsUnderLoad brings a second life to Standby beside one that serves, swaps to it and back as a
// host does, and opens connections all the while.
func swapsUnderLoad(t *trial) {
	s := t.calling("cluster-ip", 1)
	t.serve(s)
	stage, err := t.stage(s)
	t.need(err)
	t.cleanup(func() { stage.Close() })
	second := t.another()
	second.during("the second, beside one that serves")
	r, err := second.offer(s.Update(0))
	second.need(err)
	if len(r.Failed) > 0 {
		second.fail(fmt.Errorf("sync failed for %s: %w", r.Failed[0].Name, r.Failed[0].Err))
	}
	c := t.calls(stage, s)
	t.cleanup(func() { _ = c.end() })
	if r.Planned {
		swapByLock(t, second, s, c)
	} else {
		swapByRole(t, second, s, c)
	}
	t.during("")
	t.need(c.end())
}

// swapByRole is for dataplanes that can both be Active for a moment: the one made Active last takes
// precedence.
func swapByRole(t, second *trial, s Scenario, c *caller) {
	second.role(sdk.Standby)
	if _, err := second.inspect(); !errors.Is(err, wire.ErrUnsupported) {
		second.serves(s)
	}
	t.need(c.goOn(t.ctx, "before a swap"))
	second.during("made Active beside the first, which is Active (a relay listens with SO_REUSEPORT)")
	second.role(sdk.Active)
	t.need(c.goOn(t.ctx, "swapped to the second, while both are Active"))
	t.role(sdk.Draining)
	t.need(c.goOn(t.ctx, "swapped to the second"))
	t.during("made Active again beside the second")
	t.role(sdk.Active)
	second.role(sdk.Draining)
	t.need(c.goOn(t.ctx, "swapped back to the first"))
}

// swapByLock is for those of which one at a time has the writer's lock: the kernel serves on while
// the lock changes hands.
func swapByLock(t, second *trial, s Scenario, c *caller) {
	t.need(c.goOn(t.ctx, "before a swap"))
	t.role(sdk.Yielded)
	second.during("made Active when the first has yielded")
	second.role(sdk.Active)
	second.writes(s)
	t.need(c.goOn(t.ctx, "swapped to the second"))
	second.role(sdk.Yielded)
	t.during("made Active again when the second has yielded")
	t.role(sdk.Active)
	t.writes(s)
	t.need(c.goOn(t.ctx, "swapped back to the first"))
}

// A caller opens one connection after another, until it is ended or one fails.
type caller struct {
	cancel context.CancelFunc
	done   chan struct{}
	silent bool // of a dataplane in memory, which no packet can reach

	mu    sync.Mutex // guards what is below
	part  string     // of the swap
	count int        // connections that were answered
	err   error      // what ended it
}

// calls begins to open connections to what s says is served.
func (t *trial) calls(stage Stage, s Scenario) *caller {
	ctx, cancel := context.WithCancel(t.ctx)
	c := &caller{cancel: cancel, done: make(chan struct{})}
	if _, c.silent = stage.(saidStage); c.silent {
		close(c.done)
		return c
	}
	packets := slices.DeleteFunc(slices.Clone(s.Packets), func(p Packet) bool { return p.Want.Unserved || p.Want.Verdict != sdk.Forward })
	go func() { // ends with end, or with the check
		defer close(c.done)
		for i := 0; ctx.Err() == nil; i++ {
			if !c.note(ctx, c.call(ctx, stage, packets[i%len(packets)])) {
				return
			}
			pause(ctx, 5*time.Millisecond) // so that the caller's ports last
		}
	}()
	return c
}

// call opens one connection. What a listener has not accepted when it is closed, the kernel
// resets: a caller that tries once more at once has to be answered.
func (c *caller) call(ctx context.Context, stage Stage, p Packet) error {
	var err error
	for range 2 {
		var a Answer
		a, err = stage.Send(ctx, p)
		if err == nil && a.Verdict == sdk.Forward && slices.Contains(p.Want.Endpoints, a.Endpoint) {
			return nil
		}
		text, _, _ := strings.Cut(p.Text, " = ")
		err = fmt.Errorf("a new connection, %s: %w", text, found(p.Want.String(), a, err))
	}
	return err
}

// note counts a connection, and reports whether to open another one.
func (c *caller) note(ctx context.Context, err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err != nil:
		c.err = fmt.Errorf("%s: %w", c.part, err)
	default:
		c.count++
	}
	return err == nil
}

// goOn waits until some more connections were answered in a part of the swap.
func (c *caller) goOn(ctx context.Context, part string) error {
	const enough = 20
	c.mu.Lock()
	c.part = part
	until := c.count + enough
	c.mu.Unlock()
	if c.silent {
		return nil
	}
	return poll(ctx, checkTime, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil && c.count < until {
			return mismatch{fmt.Sprintf("%d connections to be answered, %s", enough, part), fmt.Sprintf("%d are not yet", until-c.count)}
		}
		return nil
	})
}

// end has it open no more, and returns why one was not answered.
func (c *caller) end() error {
	c.cancel()
	<-c.done
	return c.err
}

// pause waits, no longer than ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
