// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// This file has a mode in memory. Its kernel has an object for each Service, and one for the role.
// Package reconcile tests the frame against the contract, with its example of a mode.

// A kernel outlives the processes of the mode.
type kernel struct {
	mu     sync.Mutex // guards the fields below
	served map[sdk.Name]sdk.Service
	role   sdk.Role // zero: no process has written one
	writes int      // the number of objects that were written

	// Hooks of tests. They are set with the mutex and called without it, because the monitor may
	// write at any time.
	refuse func(sdk.Name) error // a non-nil error: the kernel refuses the object
	reject func(sdk.Name) error // a non-nil error: the kernel refuses all that is written with the object
	fail   func() error         // called before each write
}

func newKernel() *kernel {
	none := func(sdk.Name) error { return nil }
	return &kernel{served: make(map[sdk.Name]sdk.Service), refuse: none, reject: none, fail: func() error { return nil }}
}

// do calls f with the mutex.
func (k *kernel) do(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// hooks returns the present hooks.
func (k *kernel) hooks() (refuse, reject func(sdk.Name) error, fail func() error) {
	k.do(func() { refuse, reject, fail = k.refuse, k.reject, k.fail })
	return refuse, reject, fail
}

func (k *kernel) written() (n int) { k.do(func() { n = k.writes }); return n }
func (k *kernel) flush()           { k.do(func() { clear(k.served) }) }

// A memory serves one IP family. P is a Service, or nil.
type memory struct {
	of      sdk.Family
	kernel  *kernel
	hasLock bool

	role    sdk.Role
	desired map[sdk.Name]*sdk.Service
	have    map[sdk.Name]*sdk.Service // as this process has written or read it
	found   bool                      // a process has written a role
}

var _ interface {
	Family[*sdk.Service]
	Tracked
} = (*memory)(nil)

func newMemory(of sdk.Family, k *kernel) *memory {
	return &memory{of: of, kernel: k, desired: make(map[sdk.Name]*sdk.Service), have: make(map[sdk.Name]*sdk.Service)}
}

func (m *memory) Serves(f sdk.Family) bool             { return f == m.of }
func (m *memory) Hold(l *ledger.Lock)                  { m.hasLock = l != nil }
func (m *memory) Ours() bool                           { return m.found }
func (m *memory) Node(sdk.Node) error                  { return nil }
func (m *memory) Role(r sdk.Role) error                { m.role = r; return nil }
func (m *memory) Desired() map[sdk.Name]*sdk.Service   { return m.desired }
func (m *memory) Installed() map[sdk.Name]*sdk.Service { return m.have }
func (m *memory) Masquerade() *masquerade.Hold         { return nil }
func (m *memory) Tell(*sdk.Report)                     {}

func (m *memory) Flows(map[sdk.Name]sdk.Service, bool) (int, error)          { return 2, nil }
func (m *memory) Forget(sdk.Family, []sdk.Service, func()) (int, error)      { return 0, nil }
func (m *memory) ForgetEarly(sdk.Family, []sdk.Service, func()) (int, error) { return 0, nil }

func (m *memory) Want(s sdk.Service) (*sdk.Service, error) {
	if err := s.Check(); err != nil {
		return nil, &sdk.Refusal{Field: "service", Why: err.Error()}
	}
	return &s, nil
}

// Adopt reads the kernel, which has one part.
func (m *memory) Adopt(ctx context.Context, _ Parts) (role sdk.Role, err error) {
	clear(m.have)
	m.kernel.do(func() {
		for name, svc := range m.kernel.served {
			if name.Family == m.of {
				m.have[name] = &svc
			}
		}
		m.found, role = m.kernel.role != 0, max(m.kernel.role, sdk.Standby)
	})
	return role, ctx.Err()
}

func (m *memory) SetDesired(all map[sdk.Name]*sdk.Service) {
	for name, svc := range all {
		if m.desired[name] = svc; svc == nil {
			delete(m.desired, name)
		}
	}
}

// A change is a Plan: objects to set and to remove, and the role.
type change struct {
	*memory
	set    []sdk.Name
	remove []sdk.Name
}

func (m *memory) Plan() Plan {
	c := change{memory: m}
	for name, svc := range m.desired {
		if have := m.have[name]; have == nil || !svc.Equal(*have) {
			c.set = append(c.set, name)
		}
	}
	for name := range m.have {
		if m.desired[name] == nil {
			c.remove = append(c.remove, name)
		}
	}
	slices.SortFunc(c.set, sdk.Name.Compare)
	slices.SortFunc(c.remove, sdk.Name.Compare)
	return c
}

func (c change) RemovedUDP() []netip.AddrPort { return nil }

func (c change) Steps() (steps []string) {
	for _, name := range slices.Concat(c.set, c.remove) {
		steps = append(steps, "write "+name.String())
	}
	return steps
}

// Apply writes object by object, as far as the hooks allow.
func (c change) Apply(ctx context.Context) (failed []sdk.Failure, err error) {
	if !c.hasLock {
		return nil, errors.New("written without the writer's lock")
	}
	k := c.kernel
	refuse, reject, fail := k.hooks()
	for _, name := range c.set {
		if err := reject(name); err != nil {
			return nil, &Refused{Err: err}
		}
	}
	for _, name := range c.set {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := refuse(name); err != nil {
			failed = append(failed, sdk.Failure{Name: name, Err: err})
			continue
		}
		if err := fail(); err != nil {
			return nil, err
		}
		k.do(func() { k.served[name] = *c.desired[name]; k.writes++ })
		c.have[name] = c.desired[name]
	}
	for _, name := range c.remove {
		k.do(func() { delete(k.served, name); k.writes++ })
		delete(c.have, name)
	}
	k.do(func() { k.role = c.role })
	return failed, nil
}

// Probe compares the number of objects.
func (m *memory) Probe(context.Context) (found Finding) {
	there := 0
	m.kernel.do(func() {
		for name := range m.kernel.served {
			if name.Family == m.of {
				there++
			}
		}
	})
	if there != len(m.have) {
		found = Finding{Lost: All, Why: fmt.Sprintf("%d of %d objects exist", there, len(m.have))}
	}
	return found
}

// inMemory returns the mode for a kernel.
func inMemory(k *kernel) Mode[*sdk.Service] {
	return Mode[*sdk.Service]{
		Description: sdk.Description{Name: "memory", Version: "1", Features: sdk.Features, Limits: []sdk.Limit{}},
		Open: func(context.Context, sdk.Setup, Env) (Session[*sdk.Service], error) {
			return Session[*sdk.Service]{Families: []Family[*sdk.Service]{newMemory(sdk.IPv4, k), newMemory(sdk.IPv6, k)}}, nil
		},
		Sweep: func(_ context.Context, l sdk.Leftovers, _ Env) (gone []string, err error) {
			k.do(func() {
				for name := range k.served {
					gone = append(gone, "remove "+name.String())
				}
				if !l.DryRun {
					clear(k.served)
					k.role = 0
				}
			})
			return gone, nil
		},
	}
}

// opening returns the mode for a kernel with sessions that change has changed.
func opening(k *kernel, change func(*Session[*sdk.Service])) Mode[*sdk.Service] {
	m := inMemory(k)
	open := m.Open
	m.Open = func(ctx context.Context, setup sdk.Setup, env Env) (Session[*sdk.Service], error) {
		s, err := open(ctx, setup, env)
		change(&s)
		return s, err
	}
	return m
}

// only returns a change of sessions that replaces their families.
func only(families ...Family[*sdk.Service]) func(*Session[*sdk.Service]) {
	return func(s *Session[*sdk.Service]) { s.Families = families }
}
