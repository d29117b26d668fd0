// SPDX-License-Identifier: Apache-2.0

// Package userspace serves Services with sockets: it listens on the frontends' own
// addresses and carries what comes in to an endpoint. It needs no privileges, no
// rules in the kernel and no other program, which makes it the dataplane to try
// things with, and the one for machines where nothing else is allowed.
//
//	Update ──▶ want ──▶ table ──▶ plan ──▶ apply ──▶ sockets (listen)
//	                                                   │ give: a target
//	caller ───────────────────────────────────────▶ socket ──▶ pick ──▶ endpoint
//	       ◀──────────────────── join (TCP), flow (UDP) ─────────────▶
//
// A change of a Service never passes through the connections' way. A socket has a
// target, a target has a service, and a service has an immutable sdk.Service:
// each is one atomic pointer that the next connection reads.
package userspace

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// Description is what the plugin is, known without looking at the node.
var Description = sdk.Description{
	Name:    "userspace",
	Version: "0.1.0",
	Features: []sdk.Feature{
		sdk.FeatureIPv4, sdk.FeatureIPv6, sdk.FeatureUDP, sdk.FeatureNodePort,
		sdk.FeatureLocalPolicy, sdk.FeatureSourceRanges, sdk.FeatureAffinity,
	},
	Limits: []sdk.Limit{
		sdk.LimitNoDrop, sdk.LimitNoClientAddress, sdk.LimitOwnAddressesOnly, sdk.LimitDiesWithProcess,
	},
	Options: []byte(schema),
}

// A Dataplane is the relay behind the contract's calls.
type Dataplane struct {
	relay     *relay
	addresses func() ([]address, error) // of this machine

	mu       sync.Mutex // guards all below, for calls and for follow; no connection takes it
	state    sdk.State
	session  bool
	role     sdk.Role
	table    table
	services map[sdk.Name]*service
	roaming  map[sdk.Name]bool // those with frontends that stand for every address
	sockets  map[place]socket
	retired  map[place]socket // what they have begun still needs them
	owed     map[place]error  // wanted, and could not be opened
	seeds    map[sdk.Name][]sdk.Stick
	stop     context.CancelFunc // ends follow; nil: it does not run
	follows  sync.WaitGroup
}

// New is a relay in Standby. Close ends it.
func New() *Dataplane {
	d := &Dataplane{relay: newRelay(), addresses: addresses}
	d.forget()
	return d
}

// forget is the state of one that has served nothing.
func (d *Dataplane) forget() {
	d.state, d.session, d.role = sdk.State{}, false, sdk.Standby
	d.table = newTable()
	d.services = make(map[sdk.Name]*service)
	d.roaming = make(map[sdk.Name]bool)
	d.sockets = make(map[place]socket)
	d.retired = make(map[place]socket)
	d.owed = make(map[place]error)
	d.seeds = make(map[sdk.Name][]sdk.Stick)
}

// Configure begins a session. What is served goes on being served.
func (d *Dataplane) Configure(_ context.Context, setup sdk.Setup) (sdk.Description, error) {
	o, err := parseOptions(setup.Options)
	if err != nil {
		return sdk.Description{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	own, err := d.addresses()
	if err != nil {
		return sdk.Description{}, err
	}
	if setup.Log != nil {
		d.relay.log.Store(setup.Log)
	}
	d.relay.idle.Store(int64(o.udpIdleTimeout))
	d.relay.ground.Store(newGround(d.relay.ground.Load().node, own))
	d.state, d.session = sdk.State{}, true
	if d.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		d.stop = cancel
		d.follows.Go(func() { d.follow(ctx) }) // ends with Close
	}
	return narrowed(own), nil
}

// narrowed is the Description without IPv6 where the machine has none.
func narrowed(own []address) sdk.Description {
	has6 := slices.ContainsFunc(own, func(a address) bool { return a.prefix.Addr().Is6() })
	d := Description
	d.Features = slices.DeleteFunc(slices.Clone(d.Features), func(f sdk.Feature) bool {
		return f == sdk.FeatureIPv6 && !has6
	})
	return d
}

// Sync makes the sockets follow u.
func (d *Dataplane) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.session {
		return sdk.Result{}, fmt.Errorf("an update before a session: %w", sdk.ErrResync)
	}
	changes, err := d.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	var edits []edit
	if changes.Node || changes.Full {
		edits = d.stand(newGround(d.state.Node, d.relay.ground.Load().addresses))
	}
	edits = append(edits, d.edits(changes)...)
	done, err := d.carryOut(ctx, edits)
	if err != nil {
		return sdk.Result{}, fmt.Errorf("sync stopped: %w", err)
	}
	if changes.Full {
		clear(d.seeds)
	}
	d.state.Confirm(done.failed...)
	return sdk.Result{Failed: done.failed, Steps: done.planned}, nil
}

// SetRole opens the sockets or lets go of them. Connections that are established
// stay in every role; flows of UDP in all but Standby.
func (d *Dataplane) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: "unknown role " + role.String()}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	was := d.role
	d.role = role
	if role != sdk.Active {
		d.letGo()
		return nil
	}
	if _, err := d.carryOut(ctx, nil, d.everyPlace()...); err != nil {
		d.role = was
		if was != sdk.Active {
			d.letGo()
		}
		return fmt.Errorf("become active: %w", err)
	}
	return nil
}

// letGo of all sockets, as the role has it.
func (d *Dataplane) letGo() {
	for p, s := range d.sockets {
		d.release(p, s)
	}
	if d.role == sdk.Standby {
		for p, s := range d.retired {
			s.shut()
			delete(d.retired, p)
		}
	}
	clear(d.owed)
}

// Cleanup closes everything. Nothing of ours lives outside of this process, and
// the old userspace mode of kube-proxy left nothing without root either.
func (d *Dataplane) Cleanup(_ context.Context, l sdk.Leftovers) ([]string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	names := d.held()
	if !l.DryRun {
		d.relay.sendHome()
		d.relay.crowd.again()
		d.forget()
	}
	return names, nil
}

// held are the things that Cleanup would end.
func (d *Dataplane) held() []string {
	var names []string
	for p, s := range d.sockets {
		names = append(names, "socket "+p.String()+" of "+s.target().holder().name.String())
	}
	for p := range d.retired {
		names = append(names, "socket "+p.String()+", which finishes flows")
	}
	slices.Sort(names)
	if n := d.relay.counts.open.Load(); n > 0 {
		names = append(names, fmt.Sprintf("%d established connections", n))
	}
	return names
}

// Close ends everything that runs, as the end of the process would.
func (d *Dataplane) Close() error {
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	if stop != nil {
		stop()
		d.follows.Wait()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.relay.sendHome()
	d.forget()
	return nil
}
