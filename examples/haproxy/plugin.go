// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/helper"
	"github.com/pointsman/pointsman/sdk/ledger"
)

// A plugin is the dataplane. While it is Active there is one instance of HAProxy that serves;
// others may have connections left from before.
type plugin struct {
	semaphore chan struct{} // held by a call, or by what is done between calls; guards what follows
	setup     sdk.Setup
	log       *slog.Logger
	program   string // HAProxy's executable
	threads   int
	store     store
	ledger    *ledger.Ledger
	lock      *ledger.Lock // nil: this process is not the writer
	nextTry   time.Time    // of the lock, between calls
	awaits    time.Time    // since when it is tried

	session bool // Configure has begun one
	updated bool // a Full was taken in it: it is known what is desired
	state   sdk.State
	role    sdk.Role // zero: none was set
	noted   bool     // the role was set while another process was the writer, so it changed nothing

	wanted map[sdk.Name]section // what Active serves
	stale  map[sdk.Name]bool    // of them, those that are served as before: they failed, or are kept

	known    bool // what runs, as far as this process did it or read it
	current  *instance
	have     map[sdk.Name]running // of current
	draining []*instance
	affinity clients
	swept    time.Time // when what remains of former instances was looked at last

	status status
	begin  sync.Once // of the loop
	ctx    context.Context
	cancel context.CancelFunc
	loops  sync.WaitGroup
}

func newPlugin() *plugin {
	p := &plugin{semaphore: make(chan struct{}, 1), log: slog.New(slog.DiscardHandler), affinity: make(clients)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// enter waits until nothing else is at work.
func (p *plugin) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case p.semaphore <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *plugin) leave() { <-p.semaphore }

// An option is what the host's file has for this plugin.
type option struct {
	Program string `json:"program"`
	Threads int    `json:"threads"`
}

// Configure begins a session. What is served goes on being served.
func (p *plugin) Configure(ctx context.Context, setup sdk.Setup) (sdk.Description, error) {
	if err := p.enter(ctx); err != nil {
		return sdk.Description{}, err
	}
	defer p.leave()
	o, err := options(setup.Options)
	if err != nil {
		return sdk.Description{}, err
	}
	if o.Program, err = find(ctx, o.Program); err != nil {
		return sdk.Description{}, err
	}
	store, err := storeHere()
	if err != nil {
		return sdk.Description{}, err
	}
	shared, err := ledger.Open(filepath.Join(filepath.Dir(string(store)), "lock"))
	if err != nil {
		return sdk.Description{}, err
	}
	if setup.Log != nil {
		p.log = setup.Log
	}
	p.setup, p.program, p.threads, p.store, p.ledger = setup, o.Program, o.Threads, store, shared
	p.state, p.session, p.updated, p.known = sdk.State{}, true, false, false
	if p.role != sdk.Yielded {
		p.role, p.noted = 0, false
	}
	p.status.begin()
	p.begin.Do(func() { p.loops.Go(p.loop) }) // ends with Close, or the process
	return description, nil
}

// options reads what the host's file has; what is not known is refused.
func options(text []byte) (option, error) {
	var o option
	if len(bytes.TrimSpace(text)) == 0 {
		return o, nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&o); err != nil {
		return o, &sdk.Refusal{Field: "options", Why: err.Error(), Try: "only program and threads are options of haproxy"}
	}
	if o.Threads < 0 || o.Threads > 64 {
		return o, &sdk.Refusal{Field: "options.threads", Why: fmt.Sprintf("%d is not between 1 and 64", o.Threads)}
	}
	return o, nil
}

// find returns the path of an HAProxy that runs here, and is new enough: servers are added and
// removed while it runs since 2.5.
func find(ctx context.Context, program string) (string, error) {
	const install = "apt-get install haproxy"
	given := program
	if program == "" {
		program = "haproxy"
	}
	path, err := exec.LookPath(program)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	field := "options.program"
	if given == "" {
		field = ""
	}
	if err != nil {
		return "", &sdk.Refusal{Field: field, Why: err.Error(), Try: install}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "-v").Output()
	if ctx.Err() != nil {
		return "", fmt.Errorf("%s -v: %w", path, ctx.Err())
	}
	var major, minor int
	if _, scan := fmt.Sscanf(string(out), "HAProxy version %d.%d", &major, &minor); err != nil || scan != nil || major < 2 || major == 2 && minor < 5 {
		return "", &sdk.Refusal{Field: field, Why: fmt.Sprintf("%s -v says %.60q: it is not HAProxy 2.5 or later", path, out), Try: install}
	}
	return path, nil
}

// Sync makes HAProxy serve u.
func (p *plugin) Sync(ctx context.Context, u sdk.Update) (sdk.Result, error) {
	if err := p.enter(ctx); err != nil {
		return sdk.Result{}, err
	}
	defer p.leave()
	if !p.session {
		return sdk.Result{}, fmt.Errorf("an update before a session: %w", sdk.ErrResync)
	}
	changes, err := p.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	afresh := changes.Full || !p.known
	if err := p.adopt(ctx); err != nil {
		return sdk.Result{}, err
	}
	result := sdk.Result{Failed: p.follow(changes), Planned: p.lock == nil}
	p.updated = true
	touched := p.all()
	if !afresh {
		touched = names(changes)
	}
	if result.Planned {
		result.Steps = plan(p.have, p.wanted, p.all()).lines()
	} else {
		failed, err := p.write(ctx, touched)
		if err != nil {
			return sdk.Result{}, err
		}
		result.Failed = append(result.Failed, failed...)
	}
	p.state.Confirm(result.Failed...)
	p.status.took(u.To, result.Planned)
	return result, nil
}

func names(c sdk.Changes) []sdk.Name {
	all := make([]sdk.Name, len(c.Services))
	for i, change := range c.Services {
		all[i] = change.Name
	}
	return all
}

// all names what runs and what is wanted.
func (p *plugin) all() []sdk.Name {
	var all []sdk.Name
	for n := range p.wanted {
		all = append(all, n)
	}
	for n := range p.have {
		if _, ok := p.wanted[n]; !ok {
			all = append(all, n)
		}
	}
	return all
}

// SetRole changes the role. Only Active has a process that listens; before the first update of a
// session nothing is changed by it, for it is not known yet what is desired.
func (p *plugin) SetRole(ctx context.Context, role sdk.Role) error {
	if !role.Known() {
		return &sdk.Refusal{Field: "role", Why: "haproxy knows no " + role.String()}
	}
	if err := p.enter(ctx); err != nil {
		return err
	}
	defer p.leave()
	if !p.session {
		return errors.New("a role before a session")
	}
	was, noted := p.role, p.noted
	p.role = role
	if role == sdk.Yielded {
		return p.yield()
	}
	err := p.adopt(ctx)
	p.noted = p.lock == nil
	if err == nil && p.lock != nil && p.updated {
		err = p.writeAll(ctx)
	}
	if err != nil {
		p.role, p.noted = was, noted
	}
	p.count()
	return err
}

// serves reports whether an instance is to serve.
func (p *plugin) serves() bool {
	if p.role == 0 || p.noted && p.role != sdk.Active {
		return p.current != nil
	}
	return p.role == sdk.Active
}

// yield lets go of the lock. HAProxy goes on.
func (p *plugin) yield() error {
	lock := p.lock
	p.lock, p.known = nil, false
	for _, i := range append(p.draining, p.current) {
		if i != nil && i.process != nil {
			i.process.Release()
		}
	}
	p.current, p.have, p.draining = nil, nil, nil
	p.status.lock(sdk.LockReleased, sdk.Holder{})
	if lock == nil {
		return nil
	}
	return lock.Unlock()
}

// Cleanup ends every HAProxy of this dataplane in this network namespace, and removes its files.
func (p *plugin) Cleanup(ctx context.Context, l sdk.Leftovers) ([]string, error) {
	if err := p.enter(ctx); err != nil {
		return nil, err
	}
	defer p.leave()
	store, err := storeHere()
	if err != nil {
		return nil, err
	}
	all, err := store.numbers()
	if err != nil || len(all) == 0 {
		return nil, err
	}
	var removed []string
	errs := []error{}
	if !l.DryRun {
		errs = append(errs, store.setCurrent(0)) // first: nothing starts it again
	}
	for _, number := range all {
		i, rec, err := store.open(number)
		if errors.Is(err, helper.ErrNone) || i.process == nil {
			removed = append(removed, "files of an HAProxy that has ended, in "+i.dir)
		} else {
			removed = append(removed, fmt.Sprintf("%s, which has %d Services", i, len(rec.Sections)))
		}
		if !l.DryRun {
			errs = append(errs, i.remove(ctx))
		}
	}
	if !l.DryRun {
		p.current, p.have, p.draining, p.wanted, p.stale = nil, nil, nil, nil, nil
		p.state, p.updated, p.known = sdk.State{}, false, false // the next update is a Full
		p.affinity = make(clients)
		_ = os.Remove(string(store)) // another process may have begun anew
	}
	return removed, errors.Join(errs...)
}

// Close ends what runs between calls, and lets go of the lock. HAProxy goes on.
func (p *plugin) Close() error {
	p.cancel()
	p.loops.Wait()
	if err := p.enter(context.Background()); err != nil {
		return err
	}
	defer p.leave()
	p.session = false
	return p.yield()
}
