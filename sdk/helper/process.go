// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/sdk/statefile"
)

// A Process is a helper that runs, or did. Start and Find make one; the zero Process is none: it
// has ended, and no signal goes anywhere. Its methods may be called at the same time.
type Process struct {
	dir      string
	record   Record
	proc     *os.Process   // nil: of the zero Process
	done     chan struct{} // closed when it has ended
	released chan struct{} // closed by Release
	release  sync.Once
}

func newProcess(dir string, r Record, proc *os.Process) *Process {
	return &Process{dir: dir, record: r, proc: proc, done: make(chan struct{}), released: make(chan struct{})}
}

// Record returns how it is declared.
func (p *Process) Record() Record { return p.record }

// PID returns its pid; zero: it is none.
func (p *Process) PID() int { return p.record.PID }

func (p *Process) String() string { return p.record.String() }

var ended = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Done is closed when the process has ended. The dataplane then starts another one: nothing
// else does.
func (p *Process) Done() <-chan struct{} {
	if p.proc == nil {
		return ended
	}
	return p.done
}

// Alive reports whether it has not ended.
func (p *Process) Alive() bool {
	select {
	case <-p.Done():
		return false
	default:
		return p.record.Runs()
	}
}

// Signal sends the process a signal. The error is os.ErrProcessDone when it has ended.
func (p *Process) Signal(sig os.Signal) error {
	if !p.Alive() {
		return os.ErrProcessDone
	}
	return p.proc.Signal(sig)
}

// ErrStillThere is what End returns for a process that SIGKILL did not end in time: it is in a
// system call that cannot be interrupted. It stays declared.
var ErrStillThere = errors.New("the process does not end")

// killed is how long a process may take to end by SIGKILL.
const killed = 5 * time.Second

// End ends the process: by SIGTERM, and after grace, or when ctx ends, by SIGKILL; with it what
// it has started in its session. Then it is no longer declared. One that has ended is no error.
func (p *Process) End(ctx context.Context, grace time.Duration) error {
	if p.proc == nil {
		return nil
	}
	children := family(p.record, false)
	_ = p.Signal(syscall.SIGTERM) // it has ended, or SIGKILL fails too
	var sent error
	if !p.wait(ctx, grace) {
		children = append(children, family(p.record, false)...)
		if err := p.Signal(os.Kill); !errors.Is(err, os.ErrProcessDone) {
			sent = err
		}
	}
	if !p.wait(context.WithoutCancel(ctx), killed) {
		return fmt.Errorf("end helper %s: %w", p, errors.Join(sent, ErrStillThere))
	}
	endRest(p.record, children)
	p.Release()
	if r, err := read(p.dir, p.record.Name); err != nil || r.Token != p.record.Token {
		return nil // another one has its name by now
	}
	return statefile.Remove(recordFile(p.dir, p.record.Name))
}

// endRest ends what a helper that has ended has left behind: the children that were seen, and
// what has its token.
func endRest(r Record, children []member) {
	for _, m := range append(children, family(r, true)...) {
		m.kill()
	}
}

// wait waits for the end, at most d and no longer than ctx.
func (p *Process) wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return !p.Alive()
}

// Release ends watching the process, and leaves it running: Done is not closed any more if it is
// no child of this process. Find returns it again.
func (p *Process) Release() {
	if p.proc != nil {
		p.release.Do(func() { close(p.released) })
	}
}

// reap waits for a child. It ends with that.
func (p *Process) reap() {
	_, _ = p.proc.Wait() // it fails only if other code has reaped it
	close(p.done)
}

// lookEvery is how often a process is looked for where the kernel does not report its end.
const lookEvery = 100 * time.Millisecond

// follow waits for a process that is no child. It ends with that, or with Release.
func (p *Process) follow() {
	if exits, err := awaitExit(p.proc); err == nil {
		go func() { // ends with p, or by Release
			select {
			case <-p.released:
			case <-p.done:
			}
			exits.Close()
		}()
		if exits.Wait() {
			close(p.done)
			return
		}
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for p.record.Runs() {
		select {
		case <-p.released:
			return
		case <-tick.C:
		}
	}
	close(p.done)
}

// maxLog is how much a helper may print, in bytes, before what it printed goes to NAME.log.old,
// in the place of what is there.
const maxLog = 1 << 20

// trimEvery is how often that is looked at.
const trimEvery = 10 * time.Second

func logFile(dir, name string) string { return filepath.Join(dir, name+".log") }

// trim keeps the file of what it prints small. It ends with the process, or with Release.
func (p *Process) trim() {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = trimLog(logFile(p.dir, p.record.Name)) // the disk is full; it is tried again
		case <-p.done:
			return
		case <-p.released:
			return
		}
	}
}

// trimLog moves the content of a file that has become large. The process appends to it, so it
// goes on at the new end.
func trimLog(file string) error {
	info, err := os.Lstat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() <= maxLog {
		return err
	}
	from, err := os.OpenFile(file, os.O_RDWR|noFollow, 0)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := from.Seek(-maxLog, io.SeekEnd); err != nil {
		return err
	}
	err = statefile.Replace(file+".old", 0o600, func(w io.Writer) error {
		_, err := io.CopyN(w, from, maxLog)
		return err
	})
	return errors.Join(err, from.Truncate(0))
}

// lastPrinted returns the last line that a helper printed.
func lastPrinted(dir, name string) string {
	text, err := statefile.Read(logFile(dir, name))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if last := lines[len(lines)-1]; err == nil && last != "" {
		return last
	}
	return "nothing"
}
