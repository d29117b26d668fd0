// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "iptables"

// Description is what the plugin is, known without looking at the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Options:  []byte(schema),
}

// New is the dataplane, which keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane { return &plugin{dir: dir, log: slog.New(slog.DiscardHandler)} }

// A plugin is what lies between the contract and the two families' books. Calls do
// not overlap, so only what Report reads is guarded.
type plugin struct {
	dir     string
	log     *slog.Logger
	setup   sdk.Setup
	options options

	ledger *ledger.Ledger
	lock   *ledger.Lock // nil: another process is the writer, or we have yielded
	sides  []*side
	state  sdk.State
	role   sdk.Role // zero: nobody has looked yet
	aside  map[sdk.Name]bool

	mu     sync.Mutex // guards what follows, which Report and Inspect read beside a call
	report sdk.Report
	tools  []iptables.Tool
}

// Configure begins a session: which programs are there, and which of the two
// backends does the node use?
func (p *plugin) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	options, err := parseOptions(setup.Options)
	if err != nil {
		return sdk.Description{}, err
	}
	book, err := ledger.Open(p.dir)
	if err != nil {
		return sdk.Description{}, err
	}
	sides, err := p.open(ctx, options)
	if err != nil {
		return sdk.Description{}, err
	}
	if setup.Log != nil {
		p.log = setup.Log
	}
	p.setup, p.options, p.ledger = setup, options, book
	p.use(sides)
	p.state, p.aside = sdk.State{}, make(map[sdk.Name]bool)
	if p.role != sdk.Yielded {
		p.role = 0
	}
	return narrowed(sides), nil
}

// open finds the programs of each family that this node has.
func (p *plugin) open(ctx context.Context, o options) ([]*side, error) {
	backend := iptables.Backend(o.Backend)
	if o.Backend == "auto" {
		use, err := iptables.Look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		if use.Mixed() {
			p.log.Warn("rules of Kubernetes stand in both backends", "nft", use.Kube[iptables.NFT], "legacy", use.Kube[iptables.Legacy])
		}
		backend = use.Choose()
	}
	var sides []*side
	var errs []error
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tool, err := iptables.Open(ctx, family, backend)
		if err == nil {
			_, err = tool.Save(ctx, "nat")
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tool.Waiting = p.waiting
		sides = append(sides, &side{tool: tool, book: newBook(family)})
	}
	if len(sides) == 0 {
		return nil, errors.Join(errs...)
	}
	return sides, nil
}

// use makes sides those that are written to.
func (p *plugin) use(sides []*side) {
	p.sides = sides
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tools = nil
	for _, s := range sides {
		p.tools = append(p.tools, s.tool)
	}
}

// programs are those of each family that is served.
func (p *plugin) programs() []iptables.Tool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tools)
}

// narrowed is the Description without the family that the node lacks.
func narrowed(sides []*side) sdk.Description {
	d := Description
	has := make(map[sdk.Family]bool)
	for _, s := range sides {
		has[s.book.ground.family] = true
	}
	d.Features = slices.DeleteFunc(slices.Clone(d.Features), func(f sdk.Feature) bool {
		return f == sdk.FeatureIPv4 && !has[sdk.IPv4] || f == sdk.FeatureIPv6 && !has[sdk.IPv6]
	})
	return d
}

// Sync makes the tables of both families follow u.
func (p *plugin) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	changes, err := p.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	if err := p.begin(ctx, changes.Full); err != nil {
		return sdk.Result{}, err
	}
	if changes.Node || changes.Full {
		if err := p.ground(); err != nil {
			return sdk.Result{}, err
		}
	}
	var result sdk.Result
	for _, s := range p.sides {
		pieces := p.render(s, changes, u)
		if p.lock == nil {
			s.known = false // the writer goes on writing
			result.Steps = append(result.Steps, s.book.plan(s.book.put(pieces), s.book.ground.jumps(p.role)).steps()...)
			continue
		}
		failed, err := s.sync(ctx, pieces, s.book.ground.jumps(p.role))
		result.Failed = append(result.Failed, failed...)
		if err != nil {
			return sdk.Result{}, err
		}
	}
	p.setAside(u, result.Failed)
	if err := p.afterwards(changes, result.Failed); err != nil {
		return sdk.Result{}, err
	}
	p.state.Confirm()
	return result, nil
}

// begin takes the writer's lock if it can, and reads the kernel if what is there
// is not known.
func (p *plugin) begin(ctx context.Context, afresh bool) error {
	p.step()
	if err := p.tryLock(); err != nil {
		return err
	}
	role := sdk.Standby
	for _, s := range p.sides {
		if s.known && !afresh {
			continue
		}
		shown, err := s.read(ctx)
		if err != nil {
			return err
		}
		if role != sdk.Active && shown != sdk.Standby {
			role = shown
		}
	}
	if p.role == 0 {
		p.role = role
	}
	return nil
}

func (p *plugin) tryLock() error {
	if p.lock != nil || p.role == sdk.Yielded {
		return nil
	}
	lock, err := p.ledger.TryLock(mode)
	if errors.Is(err, ledger.ErrLocked) {
		p.log.Info("only planning", "err", err)
		return nil
	}
	if err != nil {
		return err
	}
	p.lock = lock
	for _, s := range p.sides {
		s.tool.Hold = lock.File()
		s.known = false
	}
	return nil
}

// ground tells each side what the node is like.
func (p *plugin) ground() error {
	for _, s := range p.sides {
		s.book.setGround(ground{
			family:    s.book.ground.family,
			node:      p.state.Node,
			localhost: *p.options.LocalhostNodePorts && localhost(s.book.ground.family, p.state.Node),
			liberal:   liberal(),
		})
	}
	return nil
}

// localhost reports whether node ports are to be had on 127.0.0.1. IPv6 has no
// way to do it.
func localhost(f sdk.Family, n sdk.Node) bool {
	return f == sdk.IPv4 && n.TakesNodePorts(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
}

// render is the pieces of the Services that changed, or that were set aside and
// are offered again. When the node changed that is all of them.
func (p *plugin) render(s *side, c sdk.Changes, u sdk.Update) map[sdk.Name]piece {
	names := make(map[sdk.Name]bool)
	for _, change := range c.Services {
		names[change.Name] = true
	}
	for i := range u.Set {
		if p.aside[u.Set[i].Name] {
			names[u.Set[i].Name] = true
		}
	}
	if c.Full || c.Node {
		for name := range p.state.Services {
			names[name] = true
		}
	}
	if c.Full {
		for name := range s.book.pieces {
			names[name] = true
		}
	}
	pieces := make(map[sdk.Name]piece)
	for name := range names {
		if svc, ok := p.state.Services[name]; ok && name.Family == s.book.ground.family {
			pieces[name] = want(svc, p.state.Node)
		} else if _, had := s.book.pieces[name]; had && !p.state.Kept[name] {
			pieces[name] = piece{}
		}
	}
	for name := range p.state.Kept {
		if _, had := s.book.pieces[name]; !had && name.Family == s.book.ground.family {
			pieces[name] = s.book.keep(name)
		}
	}
	return pieces
}

// setAside remembers what failed, so that it is tried when it is offered again
// though it is the same.
func (p *plugin) setAside(u sdk.Update, failed []sdk.Failure) {
	for i := range u.Set {
		delete(p.aside, u.Set[i].Name)
	}
	for _, name := range u.Delete {
		delete(p.aside, name)
	}
	for _, f := range failed {
		p.aside[f.Name] = true
	}
}

// SetRole puts the jumps in place that the role needs.
func (p *plugin) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return fmt.Errorf("unknown role %s", role)
	}
	if role == sdk.Yielded {
		return p.yield()
	}
	if p.role == sdk.Yielded {
		p.role = 0
	}
	if p.ledger == nil {
		return errors.New("a role before a session: call Configure first")
	}
	if err := p.begin(ctx, false); err != nil {
		return err
	}
	was := p.role
	p.role = role
	if p.lock == nil {
		return nil // it takes effect once the writer has yielded
	}
	for _, s := range p.sides {
		if _, err := s.sync(ctx, nil, s.book.ground.jumps(role)); err != nil {
			p.role = was
			return err
		}
	}
	if role == sdk.Active && was != sdk.Active {
		return p.afterwards(sdk.Changes{Full: true}, nil)
	}
	return nil
}

func (p *plugin) yield() error {
	p.role = sdk.Yielded
	return p.unlock()
}

// Close ends what ends with the process.
func (p *plugin) Close() error { return p.unlock() }

// unlock gives up the right to write.
func (p *plugin) unlock() error {
	if p.lock == nil {
		return nil
	}
	lock := p.lock
	p.lock = nil
	for _, s := range p.sides {
		s.tool.Hold = nil
	}
	return lock.Unlock()
}

// afterwards is what follows once the rules stand: the kernel's parameters, and
// the UDP flows that lead nowhere now.
func (p *plugin) afterwards(c sdk.Changes, failed []sdk.Failure) error {
	if p.lock == nil || p.role != sdk.Active {
		return nil
	}
	if c.Full || c.Node {
		if err := p.sysctls(); err != nil {
			return err
		}
	}
	return p.forget(c, failed)
}

// Report says how far the present call is.
func (p *plugin) Report() sdk.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.report
	r.Samples = slices.Clone(r.Samples)
	return r
}

func (p *plugin) waiting(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Waiting = what
}

func (p *plugin) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report.Progress++
}

// udp are the UDP Services of changes, as they are now.
func (p *plugin) udp(c sdk.Changes, failed []sdk.Failure) []sdk.Service {
	services := make(map[sdk.Name]sdk.Service)
	for _, change := range c.Services {
		if change.After != nil && change.Name.Protocol == sdk.UDP {
			services[change.Name] = *change.After
		}
	}
	if c.Full {
		for name, svc := range p.state.Services {
			if name.Protocol == sdk.UDP {
				services[name] = svc
			}
		}
	}
	for _, f := range failed {
		delete(services, f.Name)
	}
	return slices.Collect(maps.Values(services))
}
