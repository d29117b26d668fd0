// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk/wire"
)

// A Plugin is a connection to a plugin, and the process behind it.
type Plugin struct {
	*wire.Remote
	process  *process
	handle   Handle
	warnings []string
	closed   sync.Once
}

// connect connects to the plugin that h names, which is process p.
func connect(ctx context.Context, h Handle, p *process) (*Plugin, error) {
	remote, err := wire.Dial(ctx, h.Target, p)
	if err != nil {
		return nil, err
	}
	h.Target = remote.Target()
	return &Plugin{Remote: remote, process: p, handle: h}, nil
}

// Handle returns what it takes to Attach to the plugin again.
func (p *Plugin) Handle() Handle { return p.handle }

// Warnings returns what went wrong at launch without keeping the plugin from being used.
func (p *Plugin) Warnings() []string { return p.warnings }

// Exit returns how the process ended; it is known once Exited is closed.
func (p *Plugin) Exit() Exit {
	if !p.process.gone() {
		return Exit{Code: -1}
	}
	return p.process.exit
}

// Close closes the connections to the plugin and leaves it running. A child is still reaped when it ends.
func (p *Plugin) Close() error {
	p.closed.Do(p.process.forget)
	return p.Remote.Close()
}

// ErrStillThere is what Stop returns for a process that SIGKILL did not end in time: it is
// in a system call that cannot be interrupted.
var ErrStillThere = errors.New("the process does not end")

// Stop ends the plugin: it asks, then sends SIGTERM, then SIGKILL, a second apart. What the
// plugin keeps in the kernel stays. It returns in little more than three seconds, at once
// if ctx ends before, and the process is reaped. The plugin of another host's session is
// left alone: wire.ErrFenced.
func (p *Plugin) Stop(ctx context.Context) error {
	err := p.Shutdown(ctx)
	if errors.Is(err, wire.ErrFenced) {
		return err
	}
	defer p.Close()
	defer p.handle.removeDir()
	if err == nil && p.process.wait(ctx, time.Second) {
		return nil
	}
	if err := p.process.terminate(ctx); err != nil {
		return fmt.Errorf("stop %s: %w", p.Hello(), err)
	}
	return nil
}

// terminate ends the process by signals: SIGTERM, and a second later, or when ctx ends,
// SIGKILL.
func (p *process) terminate(ctx context.Context) error {
	p.kill(syscall.SIGTERM)
	if p.wait(ctx, time.Second) {
		return nil
	}
	p.kill(os.Kill)
	if p.wait(context.WithoutCancel(ctx), time.Second) {
		return nil
	}
	return ErrStillThere
}

// Abort ends a plugin that hangs, by a signal: first by SIGQUIT, to which a program in Go
// answers with what each of its goroutines is at, and a second later by SIGKILL. It
// returns what the process printed past its log; nothing of one that is no child of this
// process. It takes little more than two seconds.
func (p *Plugin) Abort() []string {
	for _, sig := range []os.Signal{syscall.SIGQUIT, os.Kill} {
		p.process.kill(sig)
		if p.process.wait(context.Background(), time.Second) {
			break
		}
	}
	return p.Exit().Stderr
}

// End ends the plugin that h names, whichever host it served: politely where it
// answers, by signal where it does not. It is for a host that finds what another
// left behind. A process that has ended is no error. One that does not answer gets a
// signal only if its environment, its network namespace and the file that it executes are
// those that h has: else the error is ErrNotPlugin. End returns within ten seconds.
func End(ctx context.Context, h Handle) error {
	polite, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	plugin, err := Attach(polite, h)
	switch {
	case err == nil:
		return plugin.Stop(ctx)
	case errors.Is(err, os.ErrProcessDone):
		h.removeDir()
		return nil
	case h.PID == 0 || h.Start == 0:
		return err // there is no telling whose process a signal would hit
	}
	p, err := watch(h.PID, h.Start)
	if err == nil {
		defer p.forget()
		err = h.shows(p)
	}
	switch {
	case err == nil:
		defer h.removeDir()
		err = p.terminate(context.WithoutCancel(ctx))
	case errors.Is(err, os.ErrProcessDone):
		h.removeDir()
		return nil
	}
	if err != nil {
		return fmt.Errorf("end %s: %w", h, err)
	}
	return nil
}

// Shown reports whether the process that h names runs, and shows itself to be the plugin
// that was launched; the error is what speaks against it. One that has ended is no error.
func (h Handle) Shown() (bool, error) {
	if h.PID == 0 || h.Start == 0 {
		return false, ErrNotPlugin
	}
	p, err := watch(h.PID, h.Start)
	if err == nil {
		defer p.forget()
		err = h.shows(p)
	}
	if errors.Is(err, os.ErrProcessDone) {
		return false, nil
	}
	return err == nil, err
}
