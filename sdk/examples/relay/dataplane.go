// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	"github.com/pointsman/pointsman/sdk"
)

// A dataplane serves what a host sends. Inspect and Report run concurrently with other calls;
// other calls never overlap.
type dataplane struct {
	mu    sync.Mutex // guards the fields below
	state sdk.State
	role  sdk.Role
	relay *relay
	log   func(message string, args ...any)
}

func newDataplane() sdk.Dataplane {
	return &dataplane{role: sdk.Standby, relay: newRelay(), log: func(string, ...any) {}}
}

// Configure begins a session. Services stay served until its first update.
func (d *dataplane) Configure(_ context.Context, setup sdk.Setup) (sdk.Description, error) {
	if options := string(setup.Options); options != "" && options != "{}" && options != "null" {
		return sdk.Description{}, &sdk.Refusal{Field: "options", Why: description.Name + " has no options", Try: "remove them from the config file"}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = sdk.State{}
	if setup.Log != nil {
		d.log = setup.Log.Warn
	}
	return description, nil
}

// Sync applies the changes of an update. It adds before it removes, so that an address which
// moves from one Service to another always has a listener.
func (d *dataplane) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	changes, err := d.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	var failed []sdk.Failure
	var former []netip.AddrPort
	for _, c := range changes.Services {
		if err := ctx.Err(); err != nil {
			return sdk.Result{}, err // the next update names all these Services again
		}
		if c.After == nil {
			continue
		}
		addresses, err := d.relay.set(*c.After, d.role == sdk.Active)
		if err != nil {
			failed = append(failed, sdk.Failure{Name: c.Name, Err: err})
		}
		former = append(former, addresses...)
	}
	for _, name := range d.gone(changes) {
		former = append(former, d.relay.remove(name)...)
	}
	d.relay.prune(former)
	d.state.Confirm(failed...)
	return sdk.Result{Failed: failed}, nil
}

// gone returns the names that are served but no longer desired. A Full is compared with
// everything that is served, because an earlier session may have left it.
func (d *dataplane) gone(changes sdk.Changes) (names []sdk.Name) {
	if !changes.Full {
		for _, c := range changes.Services {
			if c.After == nil {
				names = append(names, c.Name)
			}
		}
		return names
	}
	for name := range d.relay.services {
		if _, wanted := d.state.Services[name]; !wanted {
			names = append(names, name)
		}
	}
	return names
}

// SetRole opens the listeners in the role Active and closes them in others. Connections
// continue in every role.
func (d *dataplane) SetRole(_ context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: description.Name + " knows no " + role.String()}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.role = role
	if role != sdk.Active {
		d.relay.closeAll()
		return nil
	}
	for _, svc := range d.relay.services {
		if _, err := d.relay.set(svc, true); err != nil {
			d.log("cannot serve a Service", "service", svc.Name.String(), "err", err) // and Inspect omits it
		}
	}
	return nil
}

// Cleanup closes everything that is served. A process that has served nothing reports nothing.
func (d *dataplane) Cleanup(_ context.Context, l sdk.Leftovers) (names []string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for at := range d.relay.listeners {
		names = append(names, fmt.Sprintf("listener on %s", at))
	}
	if !l.DryRun {
		d.relay.closeAll()
		clear(d.relay.services)
		d.state = sdk.State{} // the next session will begin with a Full
	}
	return names, nil
}

// Inspect names what is served or, in a role other than Active, what would be. A host compares
// that with what it sent before it swaps.
func (d *dataplane) Inspect(_ context.Context, found func(sdk.Served) error) error {
	for _, served := range d.served() {
		if err := found(served); err != nil {
			return err
		}
	}
	return nil
}

func (d *dataplane) served() (all []sdk.Served) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, svc := range d.relay.services {
		var endpoints []netip.AddrPort
		for _, ep := range svc.Cluster {
			endpoints = append(endpoints, ep.Addr)
		}
		for _, f := range svc.Frontends {
			if _, listens := d.relay.listeners[f.Addr]; listens || d.role != sdk.Active || len(endpoints) == 0 {
				all = append(all, sdk.Served{Name: svc.Name, Frontend: f, Endpoints: endpoints})
			}
		}
	}
	return all
}

// Report returns the number of open connections, for which a host waits while draining.
func (d *dataplane) Report() sdk.Report { return sdk.Report{Flows: int(d.relay.open.Load())} }
