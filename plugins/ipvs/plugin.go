// SPDX-License-Identifier: Apache-2.0

package ipvs

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
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
func New(dir string) sdk.Dataplane { return newPlugin(dir, machine()) }

func newPlugin(dir string, e edges) *plugin {
	p := &plugin{dir: dir, edges: e, parked: &parked{reals: make(map[server][]netip.AddrPort)}, log: slog.New(slog.DiscardHandler), turn: duty.NewTurn(), among: amongOthers}
	p.claim = duty.NewClaim(mode, duty.Planner{Enter: p.turn.Enter, Lock: p.tryLock, Write: p.writePlanned, Log: func() *slog.Logger { return p.log }})
	return p
}

// A plugin is what lies between the contract and the two families' books.
type plugin struct {
	dir     string
	edges   edges
	log     *slog.Logger
	setup   sdk.Setup
	options options
	parked  *parked

	// turn is held by whoever works on what is below: a call of the host's, or
	// the watch between two of them.
	turn   duty.Turn
	kernel kernel
	ledger *ledger.Ledger
	lock   *ledger.Lock // nil: another process is the writer, or we have yielded
	claim  *duty.Claim  // to the lock
	sides  []*side
	state  sdk.State
	role   sdk.Role // zero: nobody has looked yet

	stands bool          // it was told to be in Standby, rather than found itself there
	among  time.Duration // as amongOthers

	untracked int  // connections that a change of mode would end
	recount   bool // the flows that Report tells of are to be counted again soon

	status duty.Status

	mu    sync.Mutex // guards watch
	watch *watch     // nil: nobody watches
}

// take waits for the turn. The watch, if it has it, is told to stop.
func (p *plugin) take(ctx context.Context) error {
	if w := p.watching(); w != nil {
		w.interrupt()
	}
	return p.turn.Take(ctx)
}

// Configure begins a session: is there an IPVS, are there the programs, and which of
// the two rule machines does the node use?
func (p *plugin) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	if err := p.take(ctx); err != nil {
		return sdk.Description{}, err
	}
	defer p.turn.Give()
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
	if err := p.reachKernel(ctx, options); err != nil {
		return sdk.Description{}, err
	}
	sides, err := p.openSides(ctx, options)
	if err != nil {
		return sdk.Description{}, err
	}
	for _, s := range sides {
		s.masq = &masquerade.Hold{Book: book, Holder: mode, Place: s.rules.place()}
	}
	p.setup, p.options, p.ledger, p.sides = setup, options, book, sides
	p.state = sdk.State{}
	p.claim.Begin()
	p.hold()
	if p.role != sdk.Yielded {
		p.role, p.stands = 0, false
	}
	return narrowed(sides), nil
}

// reachKernel opens what leads to the kernel, once it is known that there is
// something to lead to.
func (p *plugin) reachKernel(ctx context.Context, o options) error {
	if err := p.edges.probe(ctx, o); err != nil {
		return err
	}
	if p.kernel == (kernel{}) {
		k, err := p.edges.open()
		if err != nil {
			return err
		}
		p.kernel = k
	}
	return p.kernel.allowed()
}

// openSides finds the programs of each family that this node has.
func (p *plugin) openSides(ctx context.Context, o options) ([]*side, error) {
	rules, err := p.edges.rules(ctx, o.Backend)
	if err != nil {
		return nil, err
	}
	var sides []*side
	for _, family := range []sdk.Family{sdk.IPv4, sdk.IPv6} {
		if r, ok := rules[family]; ok {
			sides = append(sides, &side{rules: r, book: newBook(family), kernel: p.kernel, parked: p.parked, rests: make(map[sdk.Name]*rest), rounds: conntrack.NewRounds(family), step: p.status.Step, extra: make(map[set]int)})
		}
	}
	return sides, nil
}

// hold hands the writer's lock, or none, to whatever writes.
func (p *plugin) hold() {
	p.kernel.hold(p.lock)
	for _, s := range p.sides {
		s.rules.hold(p.lock, &p.status)
	}
}

// narrowed is the Description without the family that the node lacks.
func narrowed(sides []*side) sdk.Description {
	return duty.Narrow(Description, func(f sdk.Family) bool {
		return slices.ContainsFunc(sides, func(s *side) bool { return s.book.ground.family == f })
	})
}
