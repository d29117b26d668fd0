// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/sysctl"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A Dataplane implements sdk.Dataplane for a Mode. A mode embeds it, and adds the optional
// interfaces of the contract, such as Inspect.
type Dataplane[P any] struct {
	mode Mode[P]
	dir  string

	// semaphore guards all fields below, and the state of the mode.
	semaphore *semaphore

	log      *slog.Logger
	hostGone func() time.Duration // sdk.Setup.Gone
	ledger   *ledger.Ledger
	lock     *ledger.Lock // the writer's; nil: not needed yet, or this process has yielded, or the mode has none
	phase    phase        // of the session
	session  Session[P]
	families []*family[P]
	state    sdk.State

	role    sdk.Role // zero: the role that the kernel shows, which was not read yet
	planned sdk.Role // the role for which the families plan
	shown   sdk.Role // the role that the kernel shows; zero: unknown
	served  bool     // the role was more than Standby once, so connections may belong to this process

	drain       *drain // nil: the role is not Draining
	early       early
	removedUDP  []netip.AddrPort        // UDP frontends removed since their flows were last deleted
	rounds      map[sdk.Family]*rounds  // durations of these deletions
	failed      map[sdk.Name]bool       // Services that failed and that no later update has served
	matched     map[sysctl.Setting]bool // kernel parameters that had the wanted value once
	swept       bool                    // the rules in the other backend of iptables were removed in this session
	stopMonitor func()                  // nil: there was no session yet
	warned      map[string]time.Time    // when each repeated warning was logged last
	status      status
}

// A phase is the progress of a session.
type phase uint8

const (
	noSession  phase = iota // before Configure, and after Close
	configured              // no update was applied yet, so the desired state is unknown
	updated                 // an update was applied
)

// A family is a Family with the state that the frame keeps for it.
type family[P any] struct {
	Family[P]

	known   bool          // the state of the kernel is known: it was adopted, and no write has failed since
	lost    string        // what the last probe found removed or changed
	retry   time.Duration // interval between reads while the state is unknown
	retryAt time.Time     // earliest time of the next one
}

// label returns the IP families that f serves, for people.
func (f *family[P]) label() string {
	var all []string
	for _, of := range families {
		if f.Serves(of) {
			all = append(all, of.String())
		}
	}
	return strings.Join(all, " and ")
}

// New returns a Dataplane with its ledger in dir, which is ledger.Dir on a node.
func New[P any](mode Mode[P], dir string) *Dataplane[P] {
	d := &Dataplane[P]{
		mode: mode, dir: dir,
		semaphore: newSemaphore(), log: slog.New(slog.DiscardHandler),
		matched: make(map[sysctl.Setting]bool), rounds: make(map[sdk.Family]*rounds),
	}
	for _, of := range families {
		d.rounds[of] = newRounds(of)
	}
	d.status.unset = make(map[string]string)
	d.status.relays = slices.Contains(mode.Description.Limits, sdk.LimitDiesWithProcess)
	return d
}

// name returns the name of the mode, under which it holds locks and settings.
func (d *Dataplane[P]) name() string { return d.mode.Description.Name }

// Configure begins a session. It does not change what is served.
func (d *Dataplane[P]) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	if err := d.semaphore.call(ctx); err != nil {
		return sdk.Description{}, err
	}
	defer d.semaphore.release()
	shared, noLedger := ledger.Open(d.dir)
	if setup.Log != nil {
		d.log = setup.Log
	}
	env := d.env()
	env.Ledger = shared
	d.status.change(func(r *sdk.Report) { d.status.noted, r.Notes = nil, nil })
	session, err := d.mode.Open(ctx, setup, env)
	if err == nil && !session.Unlocked {
		err = noLedger
	}
	if err != nil {
		return sdk.Description{}, err
	}
	if session.Unlocked {
		if err := d.unlock(); err != nil {
			return sdk.Description{}, err
		}
	}
	d.hostGone, d.ledger = setup.Gone, shared
	d.role = 0 // a process that has yielded takes part again
	d.setSession(session)
	d.state, d.phase, d.swept = sdk.State{}, configured, false
	d.failed = make(map[sdk.Name]bool)
	d.setShown(0)
	if d.stopMonitor == nil {
		d.stopMonitor = d.startMonitor()
	}
	return d.description(), nil
}

// setSession replaces the families by those of a session. Families of both sessions keep their
// state.
func (d *Dataplane[P]) setSession(session Session[P]) {
	for _, f := range d.families {
		if !slices.Contains(session.Families, f.Family) {
			f.Hold(nil)
		}
	}
	d.session, d.families, d.planned = session, nil, 0
	for _, f := range session.Families {
		d.families = append(d.families, &family[P]{Family: f})
	}
	d.passLock(d.heldLock())
}

// env returns the Env of the mode.
func (d *Dataplane[P]) env() Env {
	return Env{
		Log: d.log, Dir: d.dir, Ledger: d.ledger,
		Step:     d.status.step,
		Services: func() int { return len(d.state.Services) },
		Take:     d.takeSettings,
		Waiting:  func(what string) { d.status.change(func(r *sdk.Report) { r.Waiting = what }) },
		Note: func(what string) {
			d.status.change(func(r *sdk.Report) {
				d.status.noted, r.Notes = append(d.status.noted, what), append(slices.Clip(r.Notes), what)
			})
		},
		GiveBack: func(l sdk.Leftovers) ([]string, error) { return sysctl.GiveBack(d.dir, d.name(), l) },
	}
}

// description returns the mode's Description, restricted to what this node supports.
func (d *Dataplane[P]) description() sdk.Description {
	here := d.mode.Description
	here.Features = slices.DeleteFunc(slices.Clone(here.Features), func(f sdk.Feature) bool {
		return f == sdk.FeatureIPv4 && d.serving(sdk.IPv4) == nil || f == sdk.FeatureIPv6 && d.serving(sdk.IPv6) == nil
	})
	if d.session.Limits != nil {
		here.Limits = d.session.Limits
	}
	return here
}

// serving returns the family that serves an IP family, or nil.
func (d *Dataplane[P]) serving(of sdk.Family) *family[P] {
	for _, f := range d.families {
		if f.Serves(of) {
			return f
		}
	}
	return nil
}

// Close stops the monitor and releases the writer's lock. The kernel stays as it is.
func (d *Dataplane[P]) Close() error {
	if err := d.semaphore.call(context.Background()); err != nil {
		return err
	}
	stop := d.stopMonitor
	d.stopMonitor, d.phase = nil, noSession
	err := d.releaseLock()
	d.semaphore.release()
	if stop != nil {
		stop()
	}
	return err
}
