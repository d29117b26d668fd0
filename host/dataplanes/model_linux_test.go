// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/host/canary"
	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// This file is a model of a kernel in which two modes have rules, and a plugin that
// writes to it. Test processes share the model through files, so it outlives each of them
// as the kernel does.

// TestMain runs this binary as a plugin if it has the name of one, and as a host if the
// environment says so.
func TestMain(m *testing.M) {
	if mode, ok := strings.CutPrefix(filepath.Base(os.Args[0]), launch.Prefix); ok {
		p := &modelPlugin{mode: mode, kernel: modelKernel{filepath.Join(filepath.Dir(os.Args[0]), "kernel")}}
		p.fault = p.kernel.fault()
		wire.Serve(sdk.Description{Name: mode, Version: "1", Features: sdk.Features}, p)
		return
	}
	if dir, ok := os.LookupEnv(modelHostEnv); ok {
		modelHost(dir)
		return
	}
	os.Exit(m.Run())
}

// A modelKernel is a directory: state.json has the rules, and violations has the changes that broke the invariant.
type modelKernel struct{ dir string }

// rules are the rules of one mode in the kernel.
type rules struct {
	Frontends map[string]bool `json:"frontends"`
	Active    bool            `json:"active"` // packets are directed to them
}

type kernelState map[string]rules // by mode

// reachable returns the frontends that serve packets.
func (s kernelState) reachable() map[string]bool {
	all := make(map[string]bool)
	for _, r := range s {
		if r.Active {
			maps.Copy(all, r.Frontends)
		}
	}
	return all
}

// change is one step of a plugin: an atomic change of its mode's rules. It records a violation if
// a frontend becomes unreachable. A process may be killed after any step.
func (k modelKernel) change(mode string, edit func(*rules)) error {
	return k.locked(func() error {
		s, err := k.read()
		if err != nil {
			return err
		}
		before := s.reachable()
		r := rules{Frontends: maps.Clone(s[mode].Frontends), Active: s[mode].Active}
		if r.Frontends == nil {
			r.Frontends = make(map[string]bool)
		}
		edit(&r)
		s[mode] = r
		if len(r.Frontends) == 0 && !r.Active {
			delete(s, mode)
		}
		for f := range before {
			if !s.reachable()[f] {
				k.violated(fmt.Sprintf("%s by %s (pid %d): now %v", f, mode, os.Getpid(), s))
			}
		}
		if err := k.write(s); err != nil {
			return err
		}
		return k.crash()
	})
}

// crash kills this process if the test requested that for this step.
func (k modelKernel) crash() error {
	file := filepath.Join(k.dir, "crash")
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	left, err := strconv.Atoi(string(data))
	if err != nil {
		return err
	}
	if left > 0 {
		return os.WriteFile(file, strconv.AppendInt(nil, int64(left-1), 10), 0o600)
	}
	_ = os.Remove(file)
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func (k modelKernel) locked(do func() error) error {
	f, err := os.OpenFile(filepath.Join(k.dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close() // which unlocks
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	return do()
}

func (k modelKernel) read() (kernelState, error) {
	data, err := os.ReadFile(filepath.Join(k.dir, "state.json"))
	if errors.Is(err, os.ErrNotExist) {
		return make(kernelState), nil
	}
	s := make(kernelState)
	return s, errors.Join(err, json.Unmarshal(data, &s))
}

func (k modelKernel) write(s kernelState) error {
	data, err := json.Marshal(s)
	if err != nil {
		return err
	}
	next := filepath.Join(k.dir, "state.json.new")
	return errors.Join(os.WriteFile(next, data, 0o600), os.Rename(next, filepath.Join(k.dir, "state.json")))
}

func (k modelKernel) violated(what string) {
	f, err := os.OpenFile(filepath.Join(k.dir, "violations"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(f, what)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		panic(err) // the test would pass without it
	}
}

// A modelPlugin is a dataplane that keeps the contract on the model kernel.
type modelPlugin struct {
	mode   string
	kernel modelKernel
	state  sdk.State
	role   sdk.Role
	full   bool // this process was sent the whole state
	beats  atomic.Uint64
	fault  string // of this binary; empty if none
	lock   *os.File
}

// becomeWriter takes the lock of the mode, or returns a *sdk.Busy.
func (p *modelPlugin) becomeWriter() error {
	if p.lock != nil {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(p.kernel.dir, "writer-"+p.mode), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return &sdk.Busy{Mode: p.mode}
	}
	p.lock = f
	return nil
}

// fault returns the fault of the binary that this process runs. The file fault has the inode of a binary and its fault.
func (k modelKernel) fault() string {
	data, _ := os.ReadFile(filepath.Join(k.dir, "fault"))
	inode, fault, _ := strings.Cut(string(data), " ")
	if info, err := os.Stat("/proc/self/exe"); err != nil || inode != fmt.Sprint(info.Sys().(*syscall.Stat_t).Ino) {
		return ""
	}
	return fault
}

// does crashes or hangs in a call if the binary has the fault for that call.
func (p *modelPlugin) does(call string) {
	switch p.fault {
	case "crashes at " + call:
		os.Exit(7)
	case "hangs at " + call:
		select {}
	}
}

func (p *modelPlugin) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	p.does("Configure")
	if _, err := os.Stat(filepath.Join(p.kernel.dir, "refuse-"+p.mode)); err == nil {
		return sdk.Description{}, &sdk.Refusal{Why: "this kernel has no " + p.mode, Try: "another mode"}
	}
	p.full = false
	return sdk.Description{Name: p.mode, Version: "1", Features: sdk.Features}, nil
}

// adopt sets the role that the kernel shows, if this process has none yet.
func (p *modelPlugin) adopt() error {
	if p.role != 0 {
		return nil
	}
	s, err := p.kernel.read()
	p.role = sdk.Standby
	if s[p.mode].Active {
		p.role = sdk.Active
	}
	return err
}

func (p *modelPlugin) Sync(_ context.Context, u sdk.Update) (sdk.Result, error) {
	if err := p.becomeWriter(); err != nil {
		return sdk.Result{}, err
	}
	p.does("Sync")
	changes, err := p.state.Apply(u)
	if err != nil {
		return sdk.Result{}, err
	}
	p.full = p.full || changes.Full
	if err := errors.Join(p.adopt(), p.program()); err != nil {
		return sdk.Result{}, err
	}
	p.state.Confirm()
	return sdk.Result{}, nil
}

// program writes the state to the kernel in steps. It adds before it removes.
func (p *modelPlugin) program() error {
	if p.role == sdk.Yielded {
		return nil
	}
	want := make(map[string]bool)
	for name := range p.state.Services {
		if name.Namespace != canary.Namespace {
			want[name.String()] = true
		}
	}
	var errs []error
	for name := range want {
		errs = append(errs, p.kernel.change(p.mode, func(r *rules) { r.Frontends[name] = true }))
	}
	errs = append(errs, p.kernel.change(p.mode, func(r *rules) {
		maps.DeleteFunc(r.Frontends, func(name string, _ bool) bool { return !want[name] })
	}), p.lead())
	return errors.Join(errs...)
}

// lead directs packets to the rules if the role is Active.
func (p *modelPlugin) lead() error {
	return p.kernel.change(p.mode, func(r *rules) { r.Active = p.role == sdk.Active })
}

// Report returns progress, unless the plugin hangs.
func (p *modelPlugin) Report() sdk.Report {
	if strings.HasPrefix(p.fault, "hangs") {
		return sdk.Report{Progress: 1}
	}
	return sdk.Report{Progress: p.beats.Add(1)}
}

func (p *modelPlugin) SetRole(ctx context.Context, role sdk.Role) error {
	if _, err := os.Stat(filepath.Join(p.kernel.dir, "hang-"+p.mode)); err == nil && role == sdk.Active {
		<-ctx.Done()
		return ctx.Err()
	}
	if role == sdk.Yielded {
		p.lock.Close() // nil if it is not the writer
		p.lock = nil
	} else if err := p.becomeWriter(); err != nil {
		return err
	}
	p.role = role
	if !p.full || role == sdk.Yielded { // a role before the first update removes nothing
		return nil
	}
	return p.lead()
}

func (p *modelPlugin) Cleanup(_ context.Context, l sdk.Leftovers) ([]string, error) {
	s, err := p.kernel.read()
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(s[p.mode].Frontends))
	if l.DryRun {
		return names, nil
	}
	return names, errors.Join(
		p.kernel.change(p.mode, func(r *rules) { r.Active = false }),
		p.kernel.change(p.mode, func(r *rules) { clear(r.Frontends) }))
}

func (p *modelPlugin) Inspect(_ context.Context, saw func(sdk.Served) error) error {
	s, err := p.kernel.read()
	if err != nil {
		return err
	}
	for name, svc := range p.state.Services {
		if !s[p.mode].Frontends[name.String()] && name.Namespace != canary.Namespace {
			continue
		}
		for _, f := range svc.Frontends {
			served := sdk.Served{Name: name, Frontend: f}
			for _, ep := range svc.Endpoints(f.Policy) {
				served.Endpoints = append(served.Endpoints, ep.Addr)
			}
			if err := saw(served); err != nil {
				return err
			}
		}
	}
	return nil
}
