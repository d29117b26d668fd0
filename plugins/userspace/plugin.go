// SPDX-License-Identifier: Apache-2.0

// Package userspace serves Services with sockets: it accepts what is sent to them, and a
// relay carries it to an endpoint. With root, rules in the kernel redirect clients of every
// frontend to few sockets (portals.go, rules.go). Without, it needs no privileges and no
// other program: it listens on the frontends' own addresses. That makes it the dataplane
// to try things with, and the one where nothing else is allowed.
//
//	Update ──▶ want ──▶ table ──▶ plan ──▶ apply ──▶ sockets, and rules to them
//	                                                   │ Serve: a target
//	client ──────────────────────────────────────▶ package relay ──▶ endpoint
//
// This package decides which sockets there are, and which Service each is for; the ones
// in package relay do the rest. No connection waits for a lock of this package.
package userspace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/userspace/relay"
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
	Limits:  []sdk.Limit{sdk.LimitNoClientAddress, sdk.LimitDiesWithProcess}, // and more without rules
	Options: []byte(schema),
}

// A Dataplane is the relay behind the contract's calls.
type Dataplane struct {
	relay     *relay.Relay
	status    *status
	addresses func() ([]address, error) // of this machine
	ledgerDir string
	claim     *duty.Claim                        // to the writer's lock, where there are rules
	urgent    atomic.Pointer[context.CancelFunc] // ends what is done between calls
	between   sync.Mutex                         // held by what is done between calls: one thing at a time

	mu       sync.Mutex // guards all below, for calls and for follow; no connection takes it
	sysctls  sdk.Sysctls
	ground   *ground
	state    sdk.State
	session  bool
	role     sdk.Role
	way      *way // nil: sockets stand on the frontends' own addresses
	table    table
	services map[sdk.Name]*relay.Service
	roaming  map[sdk.Name]bool // those with frontends that stand for every address
	sockets  map[place]relay.Socket
	retired  map[place]relay.Socket // what they have begun still needs them
	owed     map[place]error        // wanted, and could not be opened
	undone   []place                // where the last turn was not carried out to its end
	seeds    map[sdk.Name][]sdk.AffinityEntry
	stop     context.CancelFunc // ends follow; nil: it does not run
	follows  sync.WaitGroup
}

// New is a relay in Standby, which keeps its ledger in dir (ledger.Dir on a node).
// Close ends it.
func New(dir string) *Dataplane {
	d := &Dataplane{relay: relay.New(), status: newStatus(), ground: newGround(sdk.Node{}, nil), addresses: addresses, ledgerDir: dir}
	d.claim = duty.NewClaim(mode, duty.Planner{Enter: d.aside, Lock: d.tryLock, Write: d.writePlanned, Log: d.status.log.Load})
	d.forget()
	return d
}

// forget is the state of one that has served nothing.
func (d *Dataplane) forget() {
	d.state, d.session, d.role = sdk.State{}, false, sdk.Standby
	d.seeds = make(map[sdk.Name][]sdk.AffinityEntry)
	d.forgetSockets()
}

// forgetSockets closes them all, and forgets whom they served.
func (d *Dataplane) forgetSockets() {
	for _, s := range d.sockets {
		s.Close()
	}
	for _, s := range d.retired {
		s.Close()
	}
	d.table = newTable()
	d.services = make(map[sdk.Name]*relay.Service)
	d.roaming = make(map[sdk.Name]bool)
	d.sockets = make(map[place]relay.Socket)
	d.retired = make(map[place]relay.Socket)
	d.owed = make(map[place]error)
	d.undone = nil
}

// Configure begins a session. What is served goes on being served.
func (d *Dataplane) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	o, err := parseOptions(setup.Options)
	if err != nil {
		return sdk.Description{}, err
	}
	d.enter()
	defer d.mu.Unlock()
	own, err := d.addresses()
	if err != nil {
		return sdk.Description{}, err
	}
	if setup.Log != nil {
		d.status.log.Store(setup.Log)
		d.relay.SetLog(setup.Log)
	}
	if err := d.chooseWay(ctx, o); err != nil {
		return sdk.Description{}, err
	}
	d.sysctls = setup.Sysctls
	d.relay.SetUDPIdle(o.udpIdleTimeout)
	d.setGround(newGround(d.ground.node, own))
	d.state, d.session = sdk.State{}, true
	d.claim.Begin()
	if d.stop == nil {
		following, cancel := context.WithCancel(context.Background())
		d.stop = cancel
		d.follows.Go(func() { d.follow(following) }) // ends with Close
	}
	return d.narrowed(own), nil
}

// narrowed is the Description as far as it is true of this machine and this way.
func (d *Dataplane) narrowed(own []address) sdk.Description {
	has := func(f sdk.Family) bool {
		return slices.ContainsFunc(own, func(a address) bool { return sdk.FamilyOf(a.prefix.Addr()) == f }) &&
			(d.way == nil || d.way.rules.has(f))
	}
	here := duty.Narrow(Description, has)
	here.Limits = d.limits()
	return here
}

// Sync makes the sockets follow u.
func (d *Dataplane) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	d.enter()
	defer d.mu.Unlock()
	if !d.session {
		return sdk.Result{}, fmt.Errorf("an update before a session: %w", sdk.ErrResync)
	}
	changes, err := d.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	done, err := d.carry(ctx, changes)
	if err != nil {
		return sdk.Result{}, fmt.Errorf("sync stopped: %w", err)
	}
	if changes.Full {
		clear(d.seeds)
	}
	d.state.Confirm(done.failed...)
	planned := d.acts() == plans && (d.way != nil || d.role == sdk.Yielded)
	return d.claim.Took(u, sdk.Result{Failed: done.failed, Planned: planned, Steps: done.planned}), nil
}

// carry makes the sockets follow the changes; and all that was planned, once this process
// is the writer.
func (d *Dataplane) carry(ctx context.Context, changes sdk.Changes) (outcome, error) {
	if err := d.prepareWay(ctx); err != nil {
		return outcome{}, err
	}
	if d.writes() && d.claim.Owes() {
		changes = d.everything()
	}
	var edits []edit
	var further []place
	if changes.Node || changes.Full {
		own, err := d.addresses()
		if err != nil {
			return outcome{}, err
		}
		edits = d.stand(newGround(d.state.Node, own))
		further = d.reframe(true)
	}
	if d.way != nil {
		d.way.told = true
	}
	return d.carryOut(ctx, append(edits, d.edits(changes)...), further...)
}

// SetRole opens the sockets or lets go of them. Connections that are established, and flows
// of UDP, stay in every role.
func (d *Dataplane) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: "unknown role " + role.String()}
	}
	d.enter()
	defer d.mu.Unlock()
	was := d.role
	if err := d.play(ctx, was, role); err != nil {
		d.role = was
		return fmt.Errorf("become %s: %w", role, err)
	}
	if d.way == nil && role != sdk.Yielded && d.claim.Owes() {
		d.claim.Wrote(nil) // it opened every place
	}
	d.ends("")
	if role == sdk.Standby {
		d.lookBefore(ctx)
	}
	return nil
}

// play role, in place of was.
func (d *Dataplane) play(ctx context.Context, was, role sdk.Role) error {
	if d.way != nil {
		return d.playWay(ctx, role)
	}
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
		return err
	}
	return nil
}

// letGo of all sockets. What they have begun goes on.
func (d *Dataplane) letGo() {
	for p, s := range d.sockets {
		d.release(p, s)
	}
	clear(d.owed)
}

// Cleanup closes everything, and takes every rule of ours out of the kernel.
func (d *Dataplane) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	d.enter()
	defer d.mu.Unlock()
	if writes := d.way != nil && d.way.rules.lock != nil; mayUse() && !writes && !l.DryRun {
		if err := duty.CleanedIn(d.ledgerDir, mode).Leave(d.ledgerDir, mode); err != nil {
			return nil, err
		}
	}
	names := d.held()
	swept, err := sweepAll(ctx, d.ledgerDir, l, d.gotOn)
	names = append(names, swept...)
	if !l.DryRun {
		closed := d.sharedPorts()
		d.claim.Begin()
		d.claim.Forget() // the next call tries it
		d.leave()
		d.relay.Stop()
		d.forget()
		d.forgetFailed(closed)
	}
	return names, err
}

// held are the things that Cleanup would end.
func (d *Dataplane) held() []string {
	var names []string
	for p, s := range d.sockets {
		names = append(names, "socket "+p.String()+" of "+holderOf(s).name.String())
	}
	for p := range d.retired {
		names = append(names, "socket "+p.String()+", which finishes flows")
	}
	slices.Sort(names)
	if n := d.relay.Counts().Established; n > 0 {
		names = append(names, fmt.Sprintf("%d established connections", n))
	}
	return names
}

// enter begins a call: it does not wait for what follow is doing.
func (d *Dataplane) enter() {
	if end := d.urgent.Load(); end != nil {
		(*end)()
	}
	d.mu.Lock()
}

// Close ends everything that runs, as the end of the process would.
func (d *Dataplane) Close() error {
	d.claim.Close()
	d.mu.Lock()
	stop := d.stop
	d.mu.Unlock()
	if stop != nil {
		stop()
		d.follows.Wait()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.leave()
	d.relay.Stop()
	d.forget()
	return nil
}
