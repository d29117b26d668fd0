// SPDX-License-Identifier: Apache-2.0

package frame

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/pointsman/pointsman/plugins/internal/masquerade"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/sdk/sdktest"
)

// This file is a whole mode in memory: what a dataplane has to bring, and no more. Its
// kernel has an object for each Service, and one for the node and the role.

// A kernel is what outlives a process of the mode.
type kernel struct {
	mu       sync.Mutex // guards what follows
	served   map[sdk.Name]sdk.Service
	node     sdk.Node
	role     sdk.Role // zero: no process has written one
	next     int
	affinity map[client]netip.AddrPort
	writes   int // how many objects were written

	// Hooks of tests. They are set with the mutex, and called without it: a monitor may write at any time.
	refuse func(sdk.Name) error // an object that the kernel does not take, of which it says so by itself
	reject func(sdk.Name) error // and one that keeps out all that is written with it
	fail   func() error         // a write that fails
}

type client struct {
	name sdk.Name
	addr netip.Addr
}

func newKernel() *kernel {
	return &kernel{served: make(map[sdk.Name]sdk.Service), affinity: make(map[client]netip.AddrPort)}
}

// hooks are those that are set now.
func (k *kernel) hooks() (refuse, reject func(sdk.Name) error, fail func() error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.refuse, k.reject, k.fail
}

// do works on the kernel.
func (k *kernel) do(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
}

// A memory is the family of one IP family in a kernel. P is a Service, or nil.
type memory struct {
	of     sdk.Family
	kernel *kernel
	holds  bool // this process is the writer

	node    sdk.Node
	role    sdk.Role
	desired map[sdk.Name]*sdk.Service
	touched map[sdk.Name]bool
	have    map[sdk.Name]sdk.Service // as far as this process wrote or read it
	found   bool                     // a process has written a role
}

var _ interface {
	Family[*sdk.Service]
	Tracked
} = (*memory)(nil)

func newMemory(of sdk.Family, k *kernel) *memory {
	return &memory{of: of, kernel: k, desired: make(map[sdk.Name]*sdk.Service), touched: make(map[sdk.Name]bool), have: make(map[sdk.Name]sdk.Service)}
}

func (m *memory) Serves(f sdk.Family) bool          { return f == m.of }
func (m *memory) Hold(l *ledger.Lock)               { m.holds = l != nil }
func (m *memory) Ours() bool                        { return m.found }
func (m *memory) Node(n sdk.Node) error             { m.node = n; return nil }
func (m *memory) Role(r sdk.Role) error             { m.role = r; return nil }
func (m *memory) Pieces() map[sdk.Name]*sdk.Service { return m.desired }
func (m *memory) Masquerade() *masquerade.Hold      { return nil }
func (m *memory) Tell(*sdk.Report)                  {}
func (m *memory) Want(s sdk.Service) (*sdk.Service, error) {
	if err := s.Check(); err != nil {
		return nil, &sdk.Refusal{Field: "service", Why: err.Error()}
	}
	return &s, nil
}

// Adopt reads the kernel, which is one part.
func (m *memory) Adopt(ctx context.Context, _ Parts) (role sdk.Role, err error) {
	clear(m.have)
	m.kernel.do(func() {
		for name, svc := range m.kernel.served {
			if name.Family == m.of {
				m.have[name] = svc
			}
		}
		m.found, role = m.kernel.role != 0, max(m.kernel.role, sdk.Standby)
	})
	for name := range m.have {
		m.touched[name] = true
	}
	for name := range m.desired {
		m.touched[name] = true
	}
	return role, ctx.Err()
}

// Keep is what the kernel has.
func (m *memory) Keep(name sdk.Name) *sdk.Service {
	if svc, there := m.have[name]; there {
		return &svc
	}
	return nil
}

func (m *memory) Put(pieces map[sdk.Name]*sdk.Service) {
	for name, svc := range pieces {
		m.touched[name] = true
		if m.desired[name] = svc; svc == nil {
			delete(m.desired, name)
		}
	}
}

// A change is what a plan does: objects to set and to remove, and the node and the role.
type change struct {
	*memory
	set    []sdk.Name
	remove []sdk.Name
}

func (m *memory) Plan() Plan {
	c := change{memory: m}
	for name := range m.touched {
		svc, wanted := m.desired[name], m.desired[name] != nil
		have, there := m.have[name]
		switch {
		case wanted && (!there || !svc.Equal(have)):
			c.set = append(c.set, name)
		case !wanted && there:
			c.remove = append(c.remove, name)
		}
	}
	slices.SortFunc(c.set, sdk.Name.Compare)
	slices.SortFunc(c.remove, sdk.Name.Compare)
	return c
}

func (c change) RemovedUDP() []netip.AddrPort { return nil }

func (c change) Steps() []string {
	var steps []string
	for _, name := range c.set {
		steps = append(steps, "set "+name.String())
	}
	for _, name := range c.remove {
		steps = append(steps, "remove "+name.String())
	}
	return steps
}

// Apply refuses what the hooks say, and is otherwise done object by object.
func (c change) Apply(ctx context.Context) (failed []sdk.Failure, err error) {
	if !c.holds {
		return nil, errors.New("written without the writer's lock")
	}
	k := c.kernel
	refuse, reject, fail := k.hooks()
	for _, name := range c.set {
		if err := ask(reject, name); err != nil {
			return nil, &Refused{Err: err}
		}
	}
	for _, name := range c.set {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := ask(refuse, name); err != nil {
			failed = append(failed, sdk.Failure{Name: name, Err: err})
			continue
		}
		if fail != nil {
			if err := fail(); err != nil {
				return nil, err
			}
		}
		k.do(func() { k.served[name] = *c.desired[name]; k.writes++ })
		c.have[name] = *c.desired[name]
	}
	for _, name := range c.remove {
		k.do(func() { delete(k.served, name); k.writes++ })
		delete(c.have, name)
	}
	k.do(func() { k.node, k.role = c.node, c.role })
	clear(c.touched)
	return failed, nil
}

func ask(hook func(sdk.Name) error, name sdk.Name) error {
	if hook == nil {
		return nil
	}
	return hook(name)
}

// Probe compares how many objects there are.
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
		found = Finding{Lost: All, Why: fmt.Sprintf("%d of %d objects are there", there, len(m.have))}
	}
	return found
}

func (m *memory) Flows(map[sdk.Name]sdk.Service, bool) (int, error) { return 2, nil }

// Forget has nothing to do: a flow asks Forgets each time.
func (m *memory) Forget(sdk.Family, []sdk.Service, func()) (int, error) { return 0, nil }

func (m *memory) ForgetEarly(sdk.Family, []sdk.Service, func()) (int, error) { return 0, nil }

// inMemory is the mode, on a kernel.
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

// process is the mode's dataplane, with what only some can do.
type process struct {
	*Dataplane[*sdk.Service]
	kernel *kernel
}

// Inspect tells what the kernel has.
func (p *process) Inspect(ctx context.Context, tell func(sdk.Served) error) error {
	var all []sdk.Service
	p.kernel.do(func() { all = slices.Collect(maps.Values(p.kernel.served)) })
	for _, s := range all {
		for _, f := range s.Frontends {
			served := sdk.Served{Name: s.Name, Frontend: f}
			for _, ep := range s.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			if err := errors.Join(ctx.Err(), tell(served)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Send is a packet in the kernel.
func (k *kernel) Send(from sdk.Caller, to netip.AddrPort, protocol sdk.Protocol) (answer sdktest.Answer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.role != sdk.Active {
		return sdktest.Answer{}
	}
	o := sdktest.Where(maps.Values(k.served), k.node, from, to, protocol)
	if o.Unserved || o.Verdict != sdk.Forward {
		return sdktest.Answer{Verdict: o.Verdict}
	}
	svc, _, _ := sdktest.Find(maps.Values(k.served), k.node, to, protocol)
	key := client{svc.Name, from.Addr}
	ep := k.affinity[key]
	if svc.Affinity == 0 || !slices.Contains(o.Endpoints, ep) {
		ep = o.Endpoints[k.next%len(o.Endpoints)]
		k.next++
	}
	k.affinity[key] = ep
	seen := from.Addr
	if o.Masquerades(ep) {
		i := slices.IndexFunc(k.node.Addrs, func(a netip.Addr) bool { return sdk.FamilyOf(a) == svc.Name.Family })
		seen = k.node.Addrs[i]
	}
	return sdktest.Answer{Verdict: sdk.Forward, Endpoint: ep, Client: seen}
}

// Forgets is what the kernel's memory of flows comes to, while the frame forgets as it
// should.
func (k *kernel) Forgets(to netip.AddrPort, protocol sdk.Protocol, endpoint netip.AddrPort) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	svc, _, ok := sdktest.Find(maps.Values(k.served), k.node, to, protocol)
	if protocol != sdk.UDP || k.role != sdk.Active {
		return false
	}
	if !ok {
		return true
	}
	serving := slices.Clone(svc.Serving)
	for _, ep := range svc.Reachable() {
		serving = append(serving, ep.Addr.Addr())
	}
	return !slices.Contains(serving, endpoint.Addr())
}

// TestMemoryConforms: what a mode has to bring, with the frame, is a dataplane.
func TestMemoryConforms(t *testing.T) {
	t.Parallel()
	k, dir := newKernel(), t.TempDir()
	make := func() sdk.Dataplane { return &process{New(inMemory(k), dir), k} }
	s := sdktest.InProcess(inMemory(k).Description, make)
	s.Testbed = sdktest.Said(func(sdk.Dataplane) sdktest.Sender { return k })
	s.Disturb = func(context.Context) error { k.do(func() { clear(k.served) }); return nil }
	s.Foreign = func(context.Context) (string, error) { return "nothing", nil }
	sdktest.Conform(t, s)
}
