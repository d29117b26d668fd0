// SPDX-License-Identifier: Apache-2.0

package ipvs

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
	"github.com/pointsman/pointsman/sdk/conntrack"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// mode is the plugin's name, and that under which it holds locks and settings.
const mode = "ipvs"

// Description is what the plugin is, known without looking at the node.
var Description = sdk.Description{
	Name:     mode,
	Version:  "0.1.0",
	Features: sdk.Features,
	Limits:   []sdk.Limit{sdk.LimitAffinityPerFrontend},
	Options:  []byte(schema),
}

// New is the dataplane, which keeps its ledger in dir (ledger.Dir on a node).
func New(dir string) sdk.Dataplane {
	return &plugin{dir: dir, log: slog.New(slog.DiscardHandler), open: openKernel, turn: make(chan struct{}, 1)}
}

// A plugin is what lies between the contract and the two families' books.
type plugin struct {
	dir     string
	log     *slog.Logger
	open    func() (kernel, error)
	setup   sdk.Setup
	options options
	release string // the kernel's

	// turn is held by whoever works on what is below: a call of the host's, or
	// the watch between two of them.
	turn   chan struct{}
	kernel kernel
	ledger *ledger.Ledger
	lock   *ledger.Lock // nil: another process is the writer, or we have yielded
	sides  []*side
	state  sdk.State
	role   sdk.Role // zero: nobody has looked yet

	mu     sync.Mutex // guards report and watch
	report sdk.Report
	watch  *watch // nil: nobody watches
}

func (p *plugin) watching() *watch {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watch
}

// take waits for the turn. The watch, if it has it, is told to stop.
func (p *plugin) take(ctx context.Context) error {
	if w := p.watching(); w != nil {
		w.interrupt()
	}
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *plugin) give() { <-p.turn }

// Configure begins a session: is there an IPVS, are there the programs, and which of
// the two rule machines does the node use?
func (p *plugin) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	if err := p.take(ctx); err != nil {
		return sdk.Description{}, err
	}
	defer p.give()
	options, err := parseOptions(setup.Options)
	if err != nil {
		return sdk.Description{}, err
	}
	book, err := ledger.Open(p.dir)
	if err != nil {
		return sdk.Description{}, err
	}
	if setup.Log != nil {
		p.log = setup.Log
	}
	if err := p.probe(ctx, options); err != nil {
		return sdk.Description{}, err
	}
	sides, err := p.openSides(ctx, options)
	if err != nil {
		return sdk.Description{}, err
	}
	p.setup, p.options, p.ledger, p.sides = setup, options, book, sides
	p.state = sdk.State{}
	if p.lock != nil {
		p.hold(p.lock.File())
	}
	if p.role != sdk.Yielded {
		p.role = 0
	}
	return narrowed(sides), nil
}

// openSides finds the programs of each family that this node has.
func (p *plugin) openSides(ctx context.Context, o options) ([]*side, error) {
	backend := iptables.Backend(o.Backend)
	if o.Backend == "auto" {
		use, err := iptables.Look(ctx, sdk.IPv4)
		if err != nil {
			return nil, err
		}
		backend = use.Choose()
	}
	var sides []*side
	var errs []error
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		tool, err := iptables.Open(ctx, family, backend)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		tool.Waiting = p.waiting
		sides = append(sides, &side{tool: tool, book: newBook(family), kernel: p.kernel})
	}
	if len(sides) == 0 {
		return nil, errors.Join(errs...)
	}
	return sides, nil
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

// Sync makes the kernel follow u.
func (p *plugin) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if err := p.take(ctx); err != nil {
		return sdk.Result{}, err
	}
	defer p.give()
	changes, err := p.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	if err := p.begin(ctx, changes.Full); err != nil {
		return sdk.Result{}, err
	}
	if err := p.prepare(changes); err != nil {
		return sdk.Result{}, err
	}
	var result sdk.Result
	for _, s := range p.sides {
		pieces, failed := p.render(s, changes, u)
		result.Failed = append(result.Failed, failed...)
		if p.lock == nil {
			s.known = false // the writer goes on writing
			s.book.put(pieces)
			result.Steps = append(result.Steps, s.book.plan().steps()...)
			continue
		}
		failed, err := s.sync(ctx, pieces)
		result.Failed = append(result.Failed, failed...)
		if err != nil {
			return sdk.Result{}, err
		}
	}
	if err := p.forget(changes, result.Failed); err != nil {
		return sdk.Result{}, err
	}
	p.state.Confirm(result.Failed...)
	return result, nil
}

// begin takes the writer's lock if it can, and reads the kernel if what is there is
// not known.
func (p *plugin) begin(ctx context.Context, afresh bool) error {
	p.step()
	if err := p.tryLock(); err != nil {
		return err
	}
	if !afresh && !slices.ContainsFunc(p.sides, func(s *side) bool { return !s.known }) {
		return nil
	}
	role, err := p.read(ctx)
	if err != nil {
		return err
	}
	if p.role == 0 {
		p.setRole(role)
	}
	return nil
}

// read takes what the kernel has into the books, and reports the role it shows.
func (p *plugin) read(ctx context.Context) (sdk.Role, error) {
	servers, err := p.kernel.Servers()
	if err != nil {
		return 0, err
	}
	sets, err := p.kernel.Sets(ctx)
	if err != nil {
		return 0, err
	}
	addrs, err := p.kernel.Addrs()
	if err != nil {
		return 0, err
	}
	role := sdk.Standby
	for _, s := range p.sides {
		family := s.book.ground.family
		tables, err := s.tool.Save(ctx, "nat", "filter", "mangle")
		if err != nil {
			return 0, fmt.Errorf("read %s tables: %w", family, err)
		}
		shown := s.book.adopt(sight{servers, sets[family], addrs.of(family), tables}, p.options.ExcludeCIDRs)
		s.known = true
		if role != sdk.Active && shown != sdk.Standby {
			role = shown
		}
	}
	return role, nil
}

// of are the addresses of one family.
func (a addresses) of(f sdk.Family) addresses {
	other := func(addr netip.Addr) bool { return sdk.FamilyOf(addr) != f }
	return addresses{
		device: a.device,
		ours:   slices.DeleteFunc(slices.Clone(a.ours), other),
		others: slices.DeleteFunc(slices.Clone(a.others), other),
	}
}

// setRole tells the books which role they are to plan for.
func (p *plugin) setRole(role sdk.Role) {
	p.role = role
	if role == sdk.Yielded {
		return // the kernel stays as it is
	}
	for _, s := range p.sides {
		if s.book.role != role {
			s.book.role = role
			s.book.touchAll()
		}
	}
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
	p.hold(lock.File())
	for _, s := range p.sides {
		s.known = false
	}
	p.startWatch()
	return nil
}

// prepare is what comes before any Service: the kernel's parameters, and what the
// node is like.
func (p *plugin) prepare(c sdk.Changes) error {
	if !c.Full && !c.Node {
		return nil
	}
	if p.lock != nil {
		if err := p.sysctls(); err != nil {
			return err
		}
		if t := p.options.timeouts(); t != (timeouts{}) {
			if err := p.kernel.SetTimeouts(t); err != nil {
				return err
			}
		}
	}
	for _, s := range p.sides {
		s.book.setGround(p.groundOf(s))
	}
	return nil
}

// groundOf is what the node is like now.
func (p *plugin) groundOf(s *side) ground {
	g := ground{family: s.book.ground.family, node: p.state.Node, scheduler: p.options.Scheduler}
	for addr := range s.book.have.others {
		if p.state.Node.TakesNodePorts(addr) && !addr.IsLoopback() && !addr.IsLinkLocalUnicast() {
			g.addrs = append(g.addrs, addr)
		}
	}
	slices.SortFunc(g.addrs, netip.Addr.Compare)
	return g
}

// render is the pieces of the Services that changed. When the node changed that is
// all of them.
func (p *plugin) render(s *side, c sdk.Changes, u sdk.Update) (map[sdk.Name]piece, []sdk.Failure) {
	names := make(map[sdk.Name]bool)
	for _, change := range c.Services {
		names[change.Name] = true
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
	var failed []sdk.Failure
	for name := range names {
		svc, ok := p.state.Services[name]
		_, had := s.book.pieces[name]
		switch {
		case ok && name.Family == s.book.ground.family:
			piece, err := s.book.render(svc)
			if err != nil {
				failed = append(failed, sdk.Failure{Name: name, Err: err})
				continue
			}
			pieces[name] = piece
		case had && !p.state.Kept[name]:
			pieces[name] = piece{}
		}
	}
	for name := range p.state.Kept {
		if _, had := s.book.pieces[name]; !had && name.Family == s.book.ground.family {
			pieces[name] = s.book.keep(name)
		}
	}
	return pieces, failed
}

// render is the piece of svc, with a mark of its own if it needs one.
func (b *book) render(svc sdk.Service) (piece, error) {
	var mark uint32
	if needsMark(svc) {
		mark = b.marks.take(svc.Name, b.ground)
	}
	return b.ground.want(svc, mark)
}

// SetRole changes what the kernel catches.
func (p *plugin) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return fmt.Errorf("unknown role %s", role)
	}
	if err := p.take(ctx); err != nil {
		return err
	}
	defer p.give()
	if role == sdk.Yielded {
		return p.yield()
	}
	if p.ledger == nil {
		return errors.New("a role before a session: call Configure first")
	}
	was := p.role
	if was == sdk.Yielded {
		p.role = 0
	}
	if err := p.begin(ctx, false); err != nil {
		return err
	}
	p.setRole(role)
	if p.lock == nil {
		return nil // it takes effect once the writer has yielded
	}
	for _, s := range p.sides {
		if _, err := s.sync(ctx, nil); err != nil {
			return err
		}
	}
	if role == sdk.Active && was != sdk.Active {
		return p.forget(sdk.Changes{Full: true}, nil)
	}
	return nil
}

func (p *plugin) yield() error {
	p.role = sdk.Yielded
	if p.lock == nil {
		return nil
	}
	lock := p.lock
	p.lock = nil
	p.hold(nil)
	p.stopWatch()
	return lock.Unlock()
}

// Close ends what this process does beside the host's calls, and lets go of the lock.
// The kernel stays as it is.
func (p *plugin) Close() error {
	if err := p.take(context.Background()); err != nil {
		return err
	}
	defer p.give()
	p.stopWatch()
	if p.lock == nil {
		return nil
	}
	lock := p.lock
	p.lock = nil
	return lock.Unlock()
}

// forget ends UDP flows that the changes left leading nowhere.
func (p *plugin) forget(c sdk.Changes, failed []sdk.Failure) error {
	if p.lock == nil || p.role != sdk.Active {
		return nil
	}
	services := p.udp(c, failed)
	if len(services) == 0 {
		return nil
	}
	for _, s := range p.sides {
		takes := func(a netip.Addr) bool { return slices.Contains(s.book.ground.addrs, a) }
		n, err := conntrack.Forget(s.book.ground.family, conntrack.Serving(s.book.ground.family, services, takes))
		if err != nil {
			return err
		}
		if n > 0 {
			p.log.Info("forgot udp flows", "family", s.book.ground.family, "flows", n)
		}
	}
	return nil
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

// Report says how far the present call is.
func (p *plugin) Report() sdk.Report {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.report
	r.Samples = slices.Clone(r.Samples)
	return r
}

func (p *plugin) tell(change func(*sdk.Report)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.report)
}

func (p *plugin) waiting(what string) { p.tell(func(r *sdk.Report) { r.Waiting = what }) }

func (p *plugin) step() { p.tell(func(r *sdk.Report) { r.Progress++ }) }
