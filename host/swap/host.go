// SPDX-License-Identifier: Apache-2.0

package swap

import (
	"context"
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
