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

// A Dataplane is a Mode behind the contract's calls. What only some dataplanes can do, such
// as Inspect, a mode adds by embedding it.
type Dataplane[P any] struct {
	mode Mode[P]
	dir  string

	// semaphore guards everything that follows, and what the mode writes.
	semaphore *semaphore

	log      *slog.Logger
	setup    sdk.Setup
	ledger   *ledger.Ledger
	lock     *ledger.Lock // the writer's; nil: it was not needed yet, or this process has yielded, or the mode has none
	phase    phase        // of the session
	open     Session[P]
	families []*family[P]
	state    sdk.State
	role     sdk.Role // zero: the kernel says it, and was not asked yet
	planned  sdk.Role // the role that the families plan for
	shown    sdk.Role // the role that the kernel shows; zero: not known
	served   bool     // the role was more than Standby once: connections may be this process's
	drain    *drain   // nil: the role is not Draining
	early    early

	foreign foreign

	seen         map[sysctl.Setting]bool // kernel parameters that were as asked for, in this process
	otherBackend bool                    // it was looked in this session whether the other backend of iptables has rules of the mode
	failed       map[sdk.Name]bool       // Services that failed and that no later update has served

	endMonitor func()               // nil: there was no session yet
	warned     map[string]time.Time // when what fails at each look was logged last
	status     status
}

// A phase is how far a session has come.
type phase uint8

const (
	noSession  phase = iota // before Configure, and after Close
	configured              // no update was applied yet: it is not known what is desired
	updated                 // an update was applied
)

// A family is what the frame knows of a Family.
type family[P any] struct {
	Family[P]

	adopted bool // what the kernel has is known: it was adopted, and written since without an error

	lost       string           // what the last look found removed or changed
	rounds     rounds           // of forgetting UDP flows
	removedUDP []netip.AddrPort // UDP frontends that were removed since flows were last forgotten
	retry      time.Duration // how long is waited before a family that is not known is read again,
	retryAt    time.Time     // and until when
}

// served is the IP family that f serves, or both, for people.
func (f *family[P]) served() string {
	var all []string
	for _, of := range families {
		if f.Serves(of) {
			all = append(all, of.String())
		}
	}
	return strings.Join(all, " and ")
}

// New is the dataplane of a mode, which keeps its ledger in dir (ledger.Dir on a node).
func New[P any](mode Mode[P], dir string) *Dataplane[P] {
	d := &Dataplane[P]{
		mode: mode, dir: dir,
		semaphore: newSemaphore(), log: slog.New(slog.DiscardHandler),
		seen: make(map[sysctl.Setting]bool),
	}
	d.status.unset = make(map[string]string)
	d.status.carries = slices.Contains(mode.Description.Limits, sdk.LimitDiesWithProcess)
	return d
}

// name is the mode's, under which it holds locks and settings.
func (d *Dataplane[P]) name() string { return d.mode.Description.Name }

// Configure begins a session. What is served goes on being served.
func (d *Dataplane[P]) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	if err := d.semaphore.call(ctx); err != nil {
		return sdk.Description{}, err
	}
	defer d.semaphore.done()
	shared, bookless := ledger.Open(d.dir)
	if setup.Log != nil {
		d.log = setup.Log
	}
	env := d.env()
	env.Ledger = shared
	d.status.tell(func(r *sdk.Report) { d.status.noted, r.Notes = nil, nil })
	open, err := d.mode.Open(ctx, setup, env)
	if err == nil && !open.Unlocked {
		err = bookless
	}
	if err != nil {
		return sdk.Description{}, err
	}
	if open.Unlocked {
		if err := d.unlock(); err != nil {
			return sdk.Description{}, err
		}
	}
	d.setup, d.ledger = setup, shared
	d.use(open)
	d.state, d.phase, d.otherBackend = sdk.State{}, configured, false
	d.failed = make(map[sdk.Name]bool)
	d.role = 0 // also one that has yielded takes part again
	d.tellShown(0)
	if d.endMonitor == nil {
		d.endMonitor = d.startMonitor()
	}
	return d.description(), nil
}

// use makes the families of a session those that are written to. One that goes on from the
// session before keeps what it has.
func (d *Dataplane[P]) use(open Session[P]) {
	for _, f := range d.families {
		if !slices.Contains(open.Families, f.Family) {
			f.Hold(nil)
		}
	}
	d.open, d.families, d.planned = open, nil, 0
	for _, f := range open.Families {
		d.families = append(d.families, &family[P]{Family: f, rounds: newRounds()})
	}
	d.hold()
}

// env is what the mode is given.
func (d *Dataplane[P]) env() Env {
	return Env{
		Log: d.log, Dir: d.dir, Ledger: d.ledger,
		Step:     d.status.step,
		Services: func() int { return len(d.state.Services) },
		Take:     d.take,
		Waiting:  func(what string) { d.status.tell(func(r *sdk.Report) { r.Waiting = what }) },
		Note: func(what string) {
			d.status.tell(func(r *sdk.Report) {
				d.status.noted, r.Notes = append(d.status.noted, what), append(slices.Clip(r.Notes), what)
			})
		},
		GiveBack: func(l sdk.Leftovers) ([]string, error) { return sysctl.GiveBack(d.dir, d.name(), l) },
	}
}

// description is the mode's, narrowed to what this node has.
func (d *Dataplane[P]) description() sdk.Description {
	here := d.mode.Description
	here.Features = slices.DeleteFunc(slices.Clone(here.Features), func(f sdk.Feature) bool {
		return f == sdk.FeatureIPv4 && d.serving(sdk.IPv4) == nil || f == sdk.FeatureIPv6 && d.serving(sdk.IPv6) == nil
	})
	if d.open.Limits != nil {
		here.Limits = d.open.Limits
	}
	return here
}

// serving is what serves an IP family; nil: nothing does.
func (d *Dataplane[P]) serving(of sdk.Family) *family[P] {
	for _, f := range d.families {
		if f.Serves(of) {
			return f
		}
	}
	return nil
}

// Close ends what runs between calls, and lets go of the lock. The kernel stays as it is.
func (d *Dataplane[P]) Close() error {
	if err := d.semaphore.call(context.Background()); err != nil {
		return err
	}
	end := d.endMonitor
	d.endMonitor, d.phase = nil, noSession
	err := d.release()
	d.semaphore.done()
	if end != nil {
		end()
	}
	d.foreign.close()
	return err
}
