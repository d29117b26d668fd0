// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
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

// An Exit is how a plugin's process ended.
type Exit struct {
	Code   int            // -1: not known, or ended by a signal
	Signal syscall.Signal // zero: none, or not known
	Stderr []string       // the last lines it printed past its log; of a panic, the first
}

// String returns a sentence without its subject: "exited with code 2: panic: …".
func (e Exit) String() string {
	if reason := e.reason(); reason != "" {
		return e.how() + ": " + reason
	}
	return e.how()
}

func (e Exit) how() string {
	switch {
	case e.Signal != 0:
		return fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	case e.Code >= 0:
		return fmt.Sprintf("exited with code %d", e.Code)
	}
	return "ended, it is not known how: it was not a child of this process"
}

// reason returns the line most likely to say why: the first of a panic or of a dump of all
// goroutines, or else the last.
func (e Exit) reason() string {
	if len(e.Stderr) == 0 {
		return ""
	}
	if e.Crash() != nil || strings.HasPrefix(e.Stderr[0], "SIGQUIT: ") {
		return e.Stderr[0]
	}
	return e.Stderr[len(e.Stderr)-1]
}

// Crash returns what a program in Go said as it crashed, and where it was then; nil: it ended
// otherwise.
func (e Exit) Crash() []string {
	if len(e.Stderr) > 0 && (strings.HasPrefix(e.Stderr[0], "panic: ") || strings.HasPrefix(e.Stderr[0], "fatal error: ")) {
		return e.Stderr
	}
	return nil
}

func exitOf(state *os.ProcessState, stderr []string) Exit {
	exit := Exit{Code: -1, Stderr: stderr}
	if state == nil {
		return exit
	}
	exit.Code = state.ExitCode()
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		exit.Signal = status.Signal()
	}
	return exit
}

// tailLines is how much raw output of a plugin is kept for the report of its end.
const tailLines = 20

// dumpBytes is how much is kept of what a Go program prints of its goroutines when it is
// told to end by SIGQUIT.
const dumpBytes = 64 << 10

// A tail keeps the last lines a process printed; once it panics, the first ones
// from there, because those have the reason.
type tail struct {
	mu     sync.Mutex // guards what is below
	lines  []string
	filled bool // from the top: these lines have the reason, later ones do not push them out
	room   int  // for more of a dump, in bytes
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.filled && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")):
		t.filled = true
		t.lines = []string{line}
	case !t.filled && strings.HasPrefix(line, "SIGQUIT: "):
		t.filled, t.room = true, dumpBytes
		t.lines = []string{line}
	case len(t.lines) < tailLines:
		t.lines = append(t.lines, line)
	case t.room > len(line):
		t.room -= len(line) + 1
		t.lines = append(t.lines, line)
	case !t.filled:
		t.lines = append(t.lines[1:len(t.lines):len(t.lines)], line)
	}
}

func (t *tail) text() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}
