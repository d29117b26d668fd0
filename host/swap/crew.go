// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A crew does the actions of one stage. from leaves and to stays; to is nil until
// it was launched.
type crew struct {
	*loop
	m        Machine
	from, to Dataplane
}

// held is what is to be let go of again.
type held struct {
	thaw func() // nil: nothing is frozen
	who  []Dataplane
	ways []string // to the canary, that led somewhere before
}

func (h *held) release() {
	for _, d := range h.who {
		d.Release()
	}
	if h.thaw != nil {
		h.thaw()
	}
	h.who, h.thaw = nil, nil
}

// do does one action.
func (c *crew) do(ctx context.Context, a Action) error {
	if err := fail(c.m.Stage, a); err != nil {
		return err
	}
	if err := c.act(ctx, a); err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

func (c *crew) act(ctx context.Context, a Action) error {
	switch a {
	case Record:
		return write(c.file, c.m)
	case Note:
		if err := write(c.file, c.m); err != nil {
			c.yard.Failed(a, err)
		}
	case Launch:
		return c.launch(ctx)
	case Check:
		return c.yard.Check(ctx, c.m.Plan)
	case Fill:
		return c.to.Filled(ctx)
	case Verify:
		return c.verify(ctx)
	case Sound:
		c.held.ways = c.yard.Sound(ctx)
	case Freeze:
		c.held.thaw = c.yard.Freeze()
	case Hold:
		return c.hold(ctx)
	case Carry:
		c.carry(ctx)
	case Release:
		c.held.release()
	case Prove:
		return c.yard.Prove(ctx, c.to, c.held.ways)
	default:
		return c.switchOver(ctx, a)
	}
	return nil
}

// switchOver is what changes who serves.
func (c *crew) switchOver(ctx context.Context, a Action) error {
	switch a {
	case Promote:
		return c.to.SetRole(ctx, sdk.Active)
	case Retire:
		return c.from.SetRole(ctx, c.leaving())
	case Restore:
		if err := c.from.Filled(ctx); err != nil {
			return err
		}
		return c.from.SetRole(ctx, sdk.Active)
	case Recall:
		return c.to.SetRole(ctx, c.leaving())
	case Await:
		return c.to.Serving(ctx)
	case Drain:
		return c.drain(ctx)
	case Clear:
		if c.from == nil {
			return nil // it never came up
		}
		return c.from.Cleanup(ctx)
	case Stop:
		if c.from != nil {
			c.from.Stop()
		}
	}
	return nil
}

// leaving is the role of the one that no longer serves. Where its rules are to stay it
// yields, which leaves the kernel as it is.
func (c *crew) leaving() sdk.Role {
	if !c.m.Plan.cleans() {
		return sdk.Yielded
	}
	return sdk.Draining
}

func (c *crew) launch(ctx context.Context) error {
	d, err := c.yard.Open(ctx, c.m.Plan)
	if d != nil {
		c.mu.Lock()
		c.coming, c.to = d, d
		c.mu.Unlock()
	}
	return err
}

// verify holds the kernel to what To was told. A dataplane that cannot say is
// taken at its word, and the host says so.
func (c *crew) verify(ctx context.Context) error {
	if c.m.Stage == Proving && !c.m.Plan.Same && c.to.Laid() {
		return nil
	}
	verified, err := c.to.Verify(ctx)
	if err == nil && !verified {
		c.yard.Failed(Verify, fmt.Errorf("%s cannot say what it serves: the swap goes on unverified", c.m.Plan.To))
	}
	return err
}

// hold waits for both; for From only for a while, because it may be what is wrong.
func (c *crew) hold(ctx context.Context) error {
	c.held.who = append(c.held.who, c.to)
	if err := c.to.Hold(ctx); err != nil {
		return err
	}
	c.held.who = append(c.held.who, c.from)
	short, cancel := context.WithTimeout(ctx, maxHeld/3)
	defer cancel()
	if err := c.from.Hold(short); err != nil {
		c.yard.Failed(Hold, err)
	}
	return nil
}

// carry hands affinity over, as far as both can.
func (c *crew) carry(ctx context.Context) {
	entries, err := c.from.ExportAffinity(ctx)
	if err == nil && len(entries) > 0 {
		err = c.to.ImportAffinity(ctx, entries)
	}
	if err != nil {
		c.yard.Failed(Carry, err)
	}
}

// drain waits until From has nothing left. That its time is over is the machine's
// to see.
func (c *crew) drain(ctx context.Context) error {
	if c.from == nil {
		return nil
	}
	if err := c.from.SetRole(ctx, c.leaving()); err != nil {
		c.yard.Failed(Drain, err) // it has been told before, but for a host that was killed
	}
	for idle := 0; ; { // a flow that is just beginning is not in the first count
		if n, err := c.from.Flows(ctx); n > 0 || err != nil {
			idle = 0
		} else if idle++; idle == 3 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * lull):
		}
	}
}
