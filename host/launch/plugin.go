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
	p.process.kill(syscall.SIGTERM)
	if p.process.wait(ctx, time.Second) {
		return nil
	}
	p.process.kill(os.Kill)
	if p.process.wait(context.WithoutCancel(ctx), time.Second) {
		return nil
	}
	return fmt.Errorf("stop %s: %w", p.Hello(), ErrStillThere)
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
