// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"log/slog"
	"net/netip"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Mode is the part of a dataplane that differs from other dataplanes.
type Mode[P any] struct {
	Description sdk.Description

	// Open begins a session. It finds out what this node supports, and changes nothing. A
	// *sdk.Refusal says what is missing.
	Open func(context.Context, sdk.Setup, Env) (Session[P], error)

	// Sweep implements Cleanup for the whole node, with or without a session, and describes
	// what it removes. A dry run only describes that. Sweep calls Env.GiveBack when the kernel
	// parameters can be restored without harm.
	Sweep func(context.Context, sdk.Leftovers, Env) ([]string, error)

	// Elsewhere removes the rules of the mode that these tools write, of a backend that the
	// session does not use, and describes them. It is nil if the mode has at most one backend.
	Elsewhere func(context.Context, []iptables.Tool, Env) ([]string, error)
}

// A Session is the result of Mode.Open.
type Session[P any] struct {
	// Families serve the IP families of the node. A Family that the previous session had too
	// keeps its state.
	Families []Family[P]

	// Settings returns the kernel parameters that the mode needs on a node. Nil means none.
	Settings func(sdk.Node) sysctl.Settings

	// Limits replace the limits of the Description, if they are not nil.
	Limits []sdk.Limit

	// Unlocked says that nothing that is written outlives the process. Two processes then
	// cannot conflict, and there is no writer's lock.
	Unlocked bool

	// Wake makes the monitor probe at once. It is never closed. Nil means that the monitor
	// probes only at its interval.
	Wake <-chan struct{}
}

// An Env provides services of the frame to a mode.
type Env struct {
	Log    *slog.Logger
	Dir    string         // of the ledger
	Ledger *ledger.Ledger // nil in Sweep, and for an Unlocked mode if the ledger cannot be opened

	Step    func()       // records progress of the present call
	Waiting func(string) // says what the present call waits for; empty: nothing
	Note    func(string) // adds a note to reports, during Open, about something that costs no Service

	// Services returns the number of Services of this node in all IP families. Only Want may
	// call it.
	Services func() int

	// Take sets kernel parameters for the mode, and adds a note for each that cannot be set
	// from here.
	Take func(sysctl.Settings) error

	// GiveBack restores all parameters that the mode has set, and describes them.
	GiveBack func(sdk.Leftovers) ([]string, error)
}

// A Family reconciles the kernel with the desired state of one or both IP families.
type Family[P any] interface {
	// Serves reports whether this Family serves the Services of an IP family.
	Serves(sdk.Family) bool

	// Hold passes the writer's lock, which every program that writes must inherit. Nil means
	// that this process is not the writer. The lock of an Unlocked mode has no file.
	Hold(*ledger.Lock)

	// Adopt reads the given parts from the kernel and treats them as if this process had
	// written them. It returns the role that the kernel shows. The next Plan compares these
	// parts completely. Adopt writes nothing and is called without the writer's lock, too. If
	// no parts are given, it needs to read only the role and what Ours returns.
	Adopt(context.Context, Parts) (sdk.Role, error)

	// Ours reports whether the last Adopt found objects that only this dataplane writes. The
	// rules of a kube-proxy, which it adopts to take its place, do not count.
	Ours() bool

	// Node and Role set the node and the role for the next plans. They may read the node.
	// Role is never called with Yielded.
	Node(sdk.Node) error
	Role(sdk.Role) error

	// Want renders a Service for the present node. An error concerns only this Service.
	Want(sdk.Service) (P, error)

	// Desired returns the desired Ps by Service. The caller must not modify the map.
	Desired() map[sdk.Name]P

	// Installed returns the Ps by which the kernel serves, as far as they are known. The caller
	// must not modify the map.
	Installed() map[sdk.Name]P

	// SetDesired replaces the desired Ps of the given Services. A zero P removes the Service.
	SetDesired(map[sdk.Name]P)

	// Plan returns the difference between the kernel and the desired state, for everything
	// that Adopt, Node, Role and SetDesired touched since a plan was applied without an error.
	Plan() Plan

	// Probe checks at little cost whether the kernel may differ from what was written, and does
	// small periodic work.
	Probe(context.Context) Finding

	// Masquerade returns the hold on the chains that all dataplanes share; nil if no rule leads
	// to them. Adopt calls its Doubt method when it reads rules.
	Masquerade() *masquerade.Hold

	// Tell adds metrics to a report, and notes that an operator should know and that cost no
	// Service, one sentence each.
	Tell(*sdk.Report)
}

// A Plan is a set of changes to one Family.
type Plan interface {
	// Steps describes the changes, one per line. An empty plan has none.
	Steps() []string

	// RemovedUDP returns the UDP frontends that the kernel has and will not have after the
	// plan. It is called before Apply. It leaves out frontends that the plan adds again.
	RemovedUDP() []netip.AddrPort

	// Apply writes the plan, which may be empty. It returns the Services that the kernel
	// refused, each with its own reason; everything else is written. After an error the state
	// of the kernel is unknown. The error is a *Refused if the kernel refused one of several
	// changes that are written together.
	Apply(context.Context) (failed []sdk.Failure, err error)
}

// Refused is the error of a Plan of which the kernel refused a part that cannot be attributed
// to one Service with certainty.
type Refused struct {
	Suspects []sdk.Name // the Services to which the part may belong; empty: unknown
	Err      error
}

func (r *Refused) Error() string { return r.Err.Error() }

// Unwrap returns the kernel's error.
func (r *Refused) Unwrap() error { return r.Err }

// Parts is a set of the parts that a Family can read separately. The Family defines the bits.
type Parts uint32

// All is the set of all parts.
const All = ^Parts(0)

// A Finding is the result of a probe. The zero value means that nothing was found.
type Finding struct {
	// Lost are the parts that may differ from what was written, and Why says how the probe
	// noticed. The frame reads them and writes what differs.
	Lost Parts
	Why  string

	// Unsure says that the finding is no observation: parts in Lost are only suspected, and
	// without such parts nothing was checked, because other programs are writing.
	Unsure bool

	// Moved says that the node has changed, in what the Family itself reads of it. Node is
	// called again, and all Services are rendered again.
	Moved bool

	// Due says that there is something to write although nothing was lost.
	Due bool
}

// A Tracked is a Family whose connections the kernel tracks.
type Tracked interface {
	// Flows returns the number of established connections of this dataplane that existed when
	// draining began. fresh is set for the first count.
	Flows(services map[sdk.Name]sdk.Service, fresh bool) (int, error)

	// Forget deletes the UDP flows to these Services of family whose endpoint does not serve,
	// and returns their number.
	Forget(family sdk.Family, services []sdk.Service, step func()) (int, error)

	// ForgetEarly deletes the entries of TCP connections to these Services of family that began
	// before the Services were there (conntrack.ForgetEarly), and returns their number.
	ForgetEarly(family sdk.Family, services []sdk.Service, step func()) (int, error)
}
