// SPDX-License-Identifier: Apache-2.0

package iptables

import (
	"context"
	"log/slog"
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
func New(dir string) sdk.Dataplane {
	return &plugin{dir: dir, log: slog.New(slog.DiscardHandler), turn: make(chan struct{}, 1)}
}

// A plugin is what lies between the contract and the two families' books.
type plugin struct {
	dir string

	// turn has an element while a call, or the watch, is at work. It guards what
	// follows, and the kernel's tables.
	turn chan struct{}

	log     *slog.Logger
	setup   sdk.Setup
	options options
	ledger  *ledger.Ledger
	lock    *ledger.Lock // nil: another process is the writer, or we have yielded
	watch   *watch       // while we are the writer
	sides   []*side
	state   sdk.State
	role    sdk.Role // zero: nobody has looked yet
	drain   drain

	mu     sync.Mutex // guards what follows, which is read beside a call
	report sdk.Report
	tools  []iptables.Tool
	ours   recent
}

// take waits until no call and no repair is at work.
func (p *plugin) take(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *plugin) give() { <-p.turn }

// Configure begins a session: which programs are there, and which of the two
// backends does the node use?
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
	sides, err := p.open(ctx, options)
	if err != nil {
		return sdk.Description{}, err
	}
	p.setup, p.options, p.ledger = setup, options, book
	p.use(sides)
	p.state = sdk.State{}
	if p.role != sdk.Yielded {
		p.role = 0
	}
	return narrowed(sides), nil
}
