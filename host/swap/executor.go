// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
	"fmt"
	"time"

	"github.com/pointsman/pointsman/sdk"
)

// A Dataplane is what a swap needs of one that the host runs. Each call returns
// soon after its context ends.
type Dataplane interface {
	// Filled waits until it has confirmed everything, in its present process.
	Filled(context.Context) error

	// Serving waits until it is Active and has confirmed everything, or was when its
	// process was last seen and its rules outlive that process.
	Serving(context.Context) error

	// Hold waits until it has confirmed what there is, and lets no update go to
	// it until Release, which may be called without. It does not wait for one that
	// has no process.
	Hold(context.Context) error
	Release()

	// SetRole is for its present process, and for those after it.
	SetRole(context.Context, sdk.Role) error

	// TryActive is SetRole for Active, unless another process has the writer's lock: that is no error.
	TryActive(context.Context) error

	// Reinstate starts its process again after Stop, with the binary that it had, to be Active.
	Reinstate()

	// Verify compares what the kernel serves with what it was sent. It is false
	// where the dataplane cannot say.
	Verify(context.Context) (bool, error)

	// ReadyInStandby reports whether all that it serves by is there already in Standby, but for
	// what leads packets to it. Then it need not be verified again once it is Active: the
	// canary shows that packets arrive.
	ReadyInStandby() bool

	// ExportAffinity and ImportAffinity hand client affinity over; a dataplane that cannot has none, and
	// takes none.
	ExportAffinity(context.Context) ([]sdk.AffinityEntry, error)
	ImportAffinity(context.Context, []sdk.AffinityEntry) error

	// Progress is another number whenever its work has made progress, as it last reported.
	Progress() uint64

	// Flows counts the connections left of those it has begun; none if it has no process.
	Flows(context.Context) (int, error)

	// Cleanup removes it from the node, also if its process does not run.
	Cleanup(context.Context) error
	Stop() // its process; what is in the kernel stays
}

// A Host is the rest of the host, as a swap needs it.
type Host interface {
	// Open has To's process started, in Standby or, where From does not serve, in the
	// role that the kernel shows; it returns when the process is configured. A
	// dataplane that runs already is the one.
	Open(context.Context, Plan) (Dataplane, error)

	// Check says why To may not replace From.
	Check(context.Context, Plan) error

	// Freeze lets no change of Services in, until the function it returns is called.
	Freeze() (thaw func())

	// ProbeCanary finds the ways to the canary that lead somewhere now; Prove holds
	// each of those, or all if there are none, to leading there by to.
	ProbeCanary(context.Context) []string
	Prove(ctx context.Context, to Dataplane, ways []string) error

	// Record writes down where the swap stands. When it returns nil, that is there also
	// after a crash of the machine.
	Record(Machine) error

	// Serves is called when d is the one that serves and stays, while the other drains.
	Serves(d Dataplane)

	// Finished is called at the end of each swap, which was last before: d stays, and the
	// other one's process has ended. What was recorded of the swap is to be forgotten.
	Finished(d Dataplane, last Machine, o Outcome)

	// Moved is called for each change of stage but the end; it must return soon.
	Moved(before, now Machine)

	// Failed is called for an action that failed without ending the swap.
	Failed(action Action, err error)
}

// betweenCounts is between two counts of the flows that are left: no dataplane reports the
// last one's end.
const betweenCounts = 100 * time.Millisecond

// An executor does the actions of one stage. from leaves and to stays; to is nil until
// it was launched.
type executor struct {
	*loop
	m        Machine
	from, to Dataplane
}

// held is what is to be released again.
type held struct {
	thaw func() // nil: nothing is frozen
	all  []Dataplane
	ways []string // to the canary, that led somewhere before
}

func (h *held) release() {
	for _, d := range h.all {
		d.Release()
	}
	if h.thaw != nil {
		h.thaw()
	}
	h.all, h.thaw = nil, nil
}

func (x *executor) do(ctx context.Context, a Action) error {
	if err := fail(x.m.Stage, a); err != nil {
		return err
	}
	if err := x.act(ctx, a); err != nil {
		return fmt.Errorf("%s: %w", a, err)
	}
	return nil
}

func (x *executor) act(ctx context.Context, a Action) error {
	switch a {
	case Record:
		return x.host.Record(x.m)
	case Note:
		if err := x.host.Record(x.m); err != nil {
			x.host.Failed(a, err)
		}
	case Launch:
		return x.launch(ctx)
	case Check:
		return x.host.Check(ctx, x.m.Plan)
	case Fill:
		return x.to.Filled(ctx)
	case Verify:
		return x.verify(ctx)
	case ProbeCanary:
		x.held.ways = x.host.ProbeCanary(ctx)
	case Freeze:
		x.held.thaw = x.host.Freeze()
	case Hold:
		return x.hold(ctx)
	case HandOverAffinity:
		x.handOverAffinity(ctx)
	case Release:
		x.held.release()
	case Prove:
		return x.host.Prove(ctx, x.to, x.held.ways)
	default:
		return x.switchTraffic(ctx, a)
	}
	return nil
}

// switchTraffic does the actions that change which dataplane serves.
func (x *executor) switchTraffic(ctx context.Context, a Action) error {
	switch a {
	case Promote:
		return x.to.SetRole(ctx, sdk.Active)
	case Offer:
		return x.to.TryActive(ctx)
	case Retire:
		return x.from.SetRole(ctx, x.formerRole())
	case Restore:
		if err := x.from.Filled(ctx); err != nil {
			return err
		}
		return x.from.SetRole(ctx, sdk.Active)
	case Recall:
		return x.to.SetRole(ctx, x.formerRole())
	case Reinstate:
		x.to.Stop()
		x.from.Reinstate()
	case Await:
		return x.to.Serving(ctx)
	case Drain:
		return x.drain(ctx)
	case Clear:
		if x.from == nil {
			return nil // it never came up
		}
		return x.from.Cleanup(ctx)
	case Stop:
		if x.from != nil {
			x.from.Stop()
		}
	}
	return nil
}

// formerRole returns the role of the one that no longer serves. Where its rules are to stay it
// yields, which leaves the kernel as it is.
func (x *executor) formerRole() sdk.Role {
	if !x.m.Plan.cleans() {
		return sdk.Yielded
	}
	return sdk.Draining
}

func (x *executor) launch(ctx context.Context) error {
	d, err := x.host.Open(ctx, x.m.Plan)
	if d != nil {
		x.mu.Lock()
		x.coming, x.to = d, d
		x.mu.Unlock()
	}
	return err
}

// verify compares the kernel with what To was sent. A dataplane that has no Inspect is
// not verified, and the host says so.
func (x *executor) verify(ctx context.Context) error {
	if x.m.Stage == Proving && !x.m.Plan.Same && x.to.ReadyInStandby() {
		return nil
	}
	verified, err := x.to.Verify(ctx)
	if err == nil && !verified {
		x.host.Failed(Verify, fmt.Errorf("%s cannot say what it serves: the swap goes on unverified", x.m.Plan.To))
	}
	return err
}

// hold waits for both; for From only for a while, because it may be the faulty one.
func (x *executor) hold(ctx context.Context) error {
	x.held.all = append(x.held.all, x.to)
	if err := x.to.Hold(ctx); err != nil {
		return err
	}
	x.held.all = append(x.held.all, x.from)
	short, cancel := context.WithTimeout(ctx, maxHeld/3)
	defer cancel()
	if err := x.from.Hold(short); err != nil {
		x.host.Failed(Hold, err)
	}
	return nil
}

// handOverAffinity hands client affinity over, as far as both can.
func (x *executor) handOverAffinity(ctx context.Context) {
	entries, err := x.from.ExportAffinity(ctx)
	if err == nil && len(entries) > 0 {
		err = x.to.ImportAffinity(ctx, entries)
	}
	if err != nil {
		x.host.Failed(HandOverAffinity, err)
	}
}

// drain waits until From has nothing left. That its time is over is the machine's
// to see.
func (x *executor) drain(ctx context.Context) error {
	if x.from == nil {
		return nil
	}
	if err := x.from.SetRole(ctx, x.formerRole()); err != nil {
		x.host.Failed(Drain, err) // it has the role already, unless the host was killed
	}
	for idle := 0; ; { // a flow that is just beginning is not in the first count
		if n, err := x.from.Flows(ctx); n > 0 || err != nil {
			idle = 0
		} else if idle++; idle == 3 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(betweenCounts):
		}
	}
}
