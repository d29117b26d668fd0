// SPDX-License-Identifier: Apache-2.0

// Pointsman-dataplane-mute breaks the contract in one way: its Inspect names nothing while it does not
// serve. A host cannot swap to it.
package main

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// mute is a dataplane in memory.
type mute struct {
	sdk.Dataplane

	mu       sync.Mutex // guards what follows
	role     sdk.Role
	services map[sdk.Name]sdk.Service
}

func (m *mute) SetRole(ctx context.Context, role sdk.Role) error {
	m.mu.Lock()
	m.role = role
	m.mu.Unlock()
	return m.Dataplane.SetRole(ctx, role)
}

func (m *mute) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	m.mu.Lock()
	active := m.role == sdk.Active
	m.mu.Unlock()
	if !active {
		return nil
	}
	return m.Dataplane.(sdk.Inspector).Inspect(ctx, tell)
}

func (m *mute) serve(_ context.Context, _ sdk.Setup, s sdk.State) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.services = maps.Clone(s.Services)
	return nil
}

func (m *mute) list(context.Context) (all []sdk.Served, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.SortedFunc(maps.Keys(m.services), sdk.Name.Compare) {
		for _, f := range m.services[name].Frontends {
			served := sdk.Served{Name: name, Frontend: f}
			for _, endpoint := range m.services[name].Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, endpoint.Addr)
			}
			all = append(all, served)
		}
	}
	return all, nil
}

func main() {
	d := sdk.Description{Name: "mute", Version: "0.0.0", Features: sdk.Features, Limits: []sdk.Limit{sdk.LimitDiesWithProcess}}
	m := &mute{role: sdk.Standby}
	m.Dataplane = sdk.WholeOf(d, sdk.Parts{Serve: m.serve, List: m.list})
	wire.Serve(d, m)
}
