// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"os"
	"time"
)

// A process is a plugin's process as its host sees it: a child, or one that a former host
// left behind, or only the far end of a connection.
type process struct {
	pid    int                   // zero: not known
	start  uint64                // as StartTime tells; zero: not known
	signal func(os.Signal) error // nil: there is no way to
	exited <-chan struct{}       // closed when it has ended
	exit   Exit                  // written before exited is closed
	end    func(Exit)            // closes exited; called once
	forget func()                // ends the watch, where the process is no child
}

func newProcess(pid int) *process {
	exited := make(chan struct{})
	p := &process{pid: pid, exited: exited, forget: func() {}}
	p.end = func(e Exit) {
		p.exit = e
		close(exited)
	}
	return p
}

// PID, Exited and Ending are what a wire.Remote asks for.

func (p *process) PID() int                { return p.pid }
func (p *process) Exited() <-chan struct{} { return p.exited }
func (p *process) Ending() string          { return p.exit.String() }

// gone reports whether the process has ended.
func (p *process) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// wait waits for the end, at most d and no longer than ctx.
func (p *process) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
	case <-ctx.Done():
	}
	return p.gone()
}

// kill sends sig if there is a way to.
func (p *process) kill(sig os.Signal) {
	if p.signal != nil && !p.gone() {
		_ = p.signal(sig) // it fails only for a process that has ended
	}
}
