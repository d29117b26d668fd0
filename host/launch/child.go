// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pointsman/pointsman/internal/lines"
)

// A child is the process of a plugin: go-plugin's Runner and package wire's Process. It has pipes and a reaper of
// its own. go-plugin gets to read the first line of stdout and nothing else: of a line that is longer than 64 KiB it
// would stop reading, and a line of stderr such as {"@message":5} would end the host.
type child struct {
	cmd      *exec.Cmd
	log      func(line string)
	until    context.Context // its end kills the process, until release is called
	release  func() bool     // false: until has ended
	lifeline *os.File        // the other end of its stdin
	first    *io.PipeReader
	tail     tail
	exited   chan struct{} // closed when the process has ended and was reaped
	exit     Exit          // written before exited is closed
}

func newChild(until context.Context, cmd *exec.Cmd, log func(string)) *child {
	return &child{cmd: cmd, log: log, until: until, release: func() bool { return true }, exited: make(chan struct{})}
}

// Start starts the process, and the goroutines that read its output and wait for its end. They end with it.
func (c *child) Start(context.Context) error {
	var pipes [6]*os.File // the ends of stdin, stdout and stderr: what is read, what is written to
	for i := 0; i < len(pipes); i += 2 {
		r, w, err := os.Pipe()
		if err != nil {
			closeAll(pipes[:i])
			return err
		}
		pipes[i], pipes[i+1] = r, w
	}
	stdin, lifeline, stdout, out, stderr, errs := pipes[0], pipes[1], pipes[2], pipes[3], pipes[4], pipes[5]
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr, c.cmd.SysProcAttr = stdin, out, errs, apart()
	started := make(chan error)
	go func() {
		// The kernel sends PR_SET_PDEATHSIG when the thread ends that started the process, not when the host does
		// (prctl(2)). This one waits for the end of the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		closeAll([]*os.File{stdin, out, errs})
		if err != nil {
			closeAll([]*os.File{lifeline, stdout, stderr})
			started <- err
			return
		}
		first, handshake := io.Pipe()
		c.lifeline, c.first = lifeline, first
		started <- nil
		var readers sync.WaitGroup
		readers.Go(func() { c.readStdout(stdout, handshake) })
		readers.Go(func() { lines.Each(limited(stderr), c.print) })
		c.reap(&readers, stdout, stderr)
	}()
	err := <-started
	if err == nil {
		c.release = context.AfterFunc(c.until, c.kill)
	}
	return err
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// readStdout passes the first line on to go-plugin, and takes others as printed.
func (c *child) readStdout(stdout io.Reader, handshake *io.PipeWriter) {
	defer handshake.Close()
	seen := false
	lines.Each(limited(stdout), func(line string) {
		if seen {
			c.print(line)
			return
		}
		seen = true
		_, _ = io.WriteString(handshake, line+"\n") // go-plugin reads it, or was closed by reap
		handshake.Close()
	})
}

func (c *child) print(line string) {
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) { // a line of its log says nothing of its end
		c.tail.add(line)
	}
	if c.log != nil {
		c.log(line)
	}
}

// lastWords is how long the readers may go on after the end of the process: a program that it started may have
// inherited its stderr.
const lastWords = 200 * time.Millisecond

// reap waits for the end of the process.
func (c *child) reap(readers *sync.WaitGroup, stdout, stderr *os.File) {
	state, _ := c.cmd.Process.Wait() // it fails only if other code has reaped the process
	deadline := time.Now().Add(lastWords)
	_ = stdout.SetReadDeadline(deadline) // pipes have deadlines
	_ = stderr.SetReadDeadline(deadline)
	late := time.AfterFunc(lastWords, func() { c.first.Close() }) // go-plugin may not have read the line yet
	readers.Wait()
	late.Stop()
	stdout.Close()
	stderr.Close()
	c.hangUp()
	c.exit = exitOf(state, c.tail.text())
	close(c.exited)
}

// hangUp closes the plugin's stdin, by which it is asked to end.
func (c *child) hangUp() { _ = c.lifeline.Close() }

// kill ends the process by SIGKILL.
func (c *child) kill() {
	if c.cmd.Process != nil {
		_ = c.cmd.Process.Kill() // it fails only for a process that has ended
	}
}

func (c *child) ended() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// wait waits at most d for the end of the process, and reports whether it has ended.
func (c *child) wait(d time.Duration) bool {
	if c.cmd.Process == nil {
		return true
	}
	select {
	case <-c.exited:
	case <-time.After(d):
	}
	return c.ended()
}

// What follows is package wire's Process.

func (c *child) PID() int                { return c.cmd.Process.Pid }
func (c *child) Exited() <-chan struct{} { return c.exited }
func (c *child) Ending() string          { return c.exit.String() }

// What follows is go-plugin's runner.Runner.

func (c *child) Stdout() io.ReadCloser      { return c.first }
func (c *child) Stderr() io.ReadCloser      { return io.NopCloser(strings.NewReader("")) }
func (c *child) Wait(context.Context) error { <-c.exited; return nil }
func (c *child) Kill(context.Context) error { c.kill(); return nil }
func (c *child) ID() string                 { return strconv.Itoa(c.PID()) }
func (c *child) Name() string               { return c.cmd.Path }
func (c *child) Diagnose(context.Context) string {
	return "a plugin calls wire.Serve, and prints nothing to stdout before that"
}
func (c *child) PluginToHost(network, addr string) (string, string, error) { return network, addr, nil }
func (c *child) HostToPlugin(network, addr string) (string, string, error) { return network, addr, nil }

// outputRate is how many bytes the host reads of a plugin's output in a second. A plugin that prints more waits for
// that; its log does not, but drops lines and counts them.
const outputRate = 1 << 20

// limited returns a reader of r that reads no faster than outputRate.
func limited(r io.Reader) io.Reader { return &limitedReader{r: r} }

type limitedReader struct {
	r     io.Reader
	since time.Time // when this second began
	read  int       // bytes in this second
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if now := time.Now(); now.Sub(l.since) >= time.Second {
		l.since, l.read = now, 0
	} else if l.read >= outputRate {
		time.Sleep(l.since.Add(time.Second).Sub(now))
	}
	n, err := l.r.Read(p)
	l.read += n
	return n, err
}

// An Exit is how a plugin's process ended.
type Exit struct {
	Code   int            // -1: not known, or ended by a signal
	Signal syscall.Signal // zero: none, or not known
	Stderr []string       // the last lines that it printed; of a panic, the first
}

// String returns a sentence without its subject: "exited with code 2: panic: …".
func (e Exit) String() string {
	switch {
	case len(e.Stderr) == 0:
		return e.how()
	case e.Panicked():
		return e.how() + ": " + e.Stderr[0]
	}
	return e.how() + ": " + e.Stderr[len(e.Stderr)-1]
}

func (e Exit) how() string {
	switch {
	case e.Signal != 0:
		return fmt.Sprintf("was ended by signal %d (%s)", int(e.Signal), e.Signal)
	case e.Code >= 0:
		return fmt.Sprintf("exited with code %d", e.Code)
	}
	return "ended, and it is not known how"
}

// Panicked reports whether a program in Go crashed.
func (e Exit) Panicked() bool { return len(e.Stderr) > 0 && panics(e.Stderr[0]) }

func panics(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
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

// tailLines is how much output of a plugin is kept for the report of its end.
const tailLines = 20

// A tail keeps the last lines that a process printed; once it panics, the first lines from there.
type tail struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (t *tail) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	full := len(t.lines) >= tailLines
	switch panicked := len(t.lines) > 0 && panics(t.lines[0]); {
	case panics(line) && !panicked:
		t.lines = []string{line}
	case full && !panicked:
		t.lines = append(t.lines[1:len(t.lines):len(t.lines)], line)
	case !full:
		t.lines = append(t.lines, line)
	}
}

func (t *tail) text() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.lines...)
}
