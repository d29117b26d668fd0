// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pointsman/pointsman/plugins/internal/duty"
	"github.com/pointsman/pointsman/plugins/internal/iptables"
	"github.com/pointsman/pointsman/plugins/internal/masquerade"
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
func New(dir string) sdk.Dataplane {
	p := &plugin{dir: dir, log: slog.New(slog.DiscardHandler), turn: duty.NewTurn(), among: amongOthers}
	p.claim = duty.NewClaim(mode, duty.Planner{Enter: p.turn.Enter, Lock: p.tryLock, Write: p.writePlanned, Log: func() *slog.Logger { return p.log }})
	return p
}

// A plugin is what lies between the contract and the two families' books.
type plugin struct {
	dir   string
	among time.Duration // as amongOthers

	// turn is had by a call, or the watch, while it is at work. It guards what
	// follows, and the kernel's tables.
	turn duty.Turn

	log     *slog.Logger
	setup   sdk.Setup
	options options
	ledger  *ledger.Ledger
	lock    *ledger.Lock // nil: another process is the writer, or we have yielded
	claim   *duty.Claim  // to the lock
	watch   *watch       // while we are the writer
	sides   []*side
	state   sdk.State
	role    sdk.Role // zero: nobody has looked yet
	caught  bool     // it was more than in Standby once: connections may be its own
	stands  bool     // it was told to be in Standby, rather than found itself there
	drain   drain

	addressed time.Time // when the node's addresses were looked at last

	status duty.Status

	mu    sync.Mutex // guards tools, which are read beside a call
	tools []iptables.Tool
}

// Configure begins a session: which programs are there, and which of the two
// backends does the node use?
func (p *plugin) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	if err := p.turn.Take(ctx); err != nil {
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
	sides, err := p.open(ctx, options)
	if err != nil {
		return sdk.Description{}, err
	}
	for _, s := range sides {
		s.Masquerade = &masquerade.Hold{Book: book, Holder: mode, Place: masquerade.At(s.Tool)}
	}
	p.setup, p.options, p.ledger = setup, options, book
	p.use(sides)
	p.state = sdk.State{}
	p.claim.Begin()
	if p.role != sdk.Yielded {
		p.role, p.stands = 0, false
	}
	return narrowed(sides), nil
}
