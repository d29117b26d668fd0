// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pointsman/pointsman/internal/lines"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A child is a plugin's process while go-plugin launches it: go-plugin's Runner,
// with the pipes and the reaping in our own hands. What go-plugin gets to read is
// the first line of stdout and nothing else; it would parse the one stream and
// stop draining the other.
type child struct {
	*process
	cmd   *exec.Cmd
	until context.Context // ends the process, until release is called
	free  func() bool     // of until; set by Start
	tail  *tail
	first chan struct{}            // closed when the first line of stdout is there, or will never be
	line  string                   // written before first is closed
	limit time.Duration            // for the first line
	late  atomic.Pointer[timedOut] // that it did not come in time; nil: it may yet
}

func newChild(until context.Context, cmd *exec.Cmd) *child {
	return &child{process: newProcess(0), cmd: cmd, until: until, free: func() bool { return true }, tail: &tail{}, first: make(chan struct{})}
}

// release lets the process outlive the context of its launch.
func (c *child) release() { c.free() }

// Start starts the process, and what reads its output and waits for its end.
// Those end with the process.
func (c *child) Start(context.Context) error {
	stdout, outEnd, err := os.Pipe()
	if err != nil {
		return err
	}
	stderr, errEnd, err := os.Pipe()
	if err != nil {
		stdout.Close()
		outEnd.Close()
		return err
	}
	c.cmd.Stdout, c.cmd.Stderr = outEnd, errEnd
	err = c.cmd.Start()
	outEnd.Close()
	errEnd.Close()
	if err != nil {
		stdout.Close()
		stderr.Close()
		return err
	}
	c.pid, c.signal = c.cmd.Process.Pid, c.cmd.Process.Signal
	c.start, _ = StartTime(c.pid) // zero if it is gone already, and then nothing asks
	c.free = context.AfterFunc(c.until, func() { c.kill(os.Kill) })
	read := make(chan struct{}, 2)
	go func() { c.readStdout(stdout); read <- struct{}{} }()
	go func() { lines.Each(stderr, c.tail.add); read <- struct{}{} }()
	go c.reap(stdout, stderr, read)
	go c.enforceLimit()
	return nil
}

// enforceLimit ends a process that prints no line in time. It returns once there is a line, or the
// process is gone.
func (c *child) enforceLimit() {
	ctx, cancel := Timeout{Limit: c.limit, PIDs: []int{c.pid}, ExcuseRunning: true}.Context(context.Background())
	defer cancel()
	select {
	case <-c.first:
	case <-c.exited:
	case <-ctx.Done():
		if late, ok := errors.AsType[*timedOut](context.Cause(ctx)); ok {
			c.late.Store(late)
		}
		c.kill(os.Kill)
	}
}

func (c *child) readStdout(stdout io.Reader) {
	lines.Each(stdout, func(line string) {
		select {
		case <-c.first:
			c.tail.add(line)
		default:
			c.line = line
			close(c.first)
		}
	})
	select {
	case <-c.first:
	default:
		close(c.first)
	}
}

// lastWords is how long the readers may take after the end: a process of the
// plugin's own that has inherited its stderr must not keep it from being reaped.
const lastWords = 200 * time.Millisecond

// reap waits for the process. Go does that by a pidfd where there is one.
func (c *child) reap(stdout, stderr *os.File, read <-chan struct{}) {
	state, _ := c.cmd.Process.Wait() // it fails only if other code has reaped it
	deadline := time.Now().Add(lastWords)
	_ = stdout.SetReadDeadline(deadline) // pipes have deadlines wherever Go has a poller
	_ = stderr.SetReadDeadline(deadline)
	<-read
	<-read
	stdout.Close()
	stderr.Close()
	c.end(exitOf(state, c.tail.text()))
}

// What follows is go-plugin's runner.Runner.

func (c *child) Stdout() io.ReadCloser { return io.NopCloser(&firstLine{child: c}) }
func (c *child) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (c *child) Wait(context.Context) error { <-c.exited; return nil }

func (c *child) Kill(context.Context) error {
	c.kill(os.Kill)
	return nil
}

func (c *child) ID() string                                                { return strconv.Itoa(c.pid) }
func (c *child) Name() string                                              { return c.cmd.Path }
func (c *child) Diagnose(context.Context) string                           { return "" }
func (c *child) PluginToHost(network, addr string) (string, string, error) { return network, addr, nil }
func (c *child) HostToPlugin(network, addr string) (string, string, error) { return network, addr, nil }

// A firstLine reads as the first line of a child's stdout, when it has come.
type firstLine struct {
	child *child
	rest  *strings.Reader
}

func (f *firstLine) Read(p []byte) (int, error) {
	if f.rest == nil {
		<-f.child.first
		f.rest = strings.NewReader("")
		if f.child.line != "" {
			f.rest = strings.NewReader(f.child.line + "\n")
		}
	}
	return f.rest.Read(p)
}

// cause returns why a launch failed, as far as can be told; err is go-plugin's word.
func (c Command) cause(ctx context.Context, err error, child *child) error {
	late := child.late.Load()
	switch {
	case child.pid == 0:
		return unstarted(c.Path, err)
	case ctx.Err() != nil:
		return child.explain(context.Cause(ctx))
	case child.silent() && late != nil:
		return child.explain(fmt.Errorf("no handshake within %s%s: does it call wire.Serve?", c.timeout(), late.excused()))
	case child.silent():
		return child.explain(fmt.Errorf("it %s before the handshake; does it call wire.Serve?", child.exit.how()))
	}
	answer, ok := parseHandshake(child.line)
	switch {
	case !ok:
		return child.explain(fmt.Errorf("it printed %q to stdout before the handshake: until wire.Serve runs, a plugin may only print to stderr", wire.Printable(child.line)))
	case !answer.speaksOurs():
		return child.explain(&wire.SkewError{Plugin: "plugin " + filepath.Base(c.Path), Majors: []uint32{answer.major}})
	case answer.certified() != nil:
		return child.explain(answer.certified())
	}
	return child.explain(err)
}

// silent reports whether the child ended without a line on stdout.
func (c *child) silent() bool {
	select {
	case <-c.first:
		return c.line == ""
	default:
		return true
	}
}

// explain adds the child's last words to err.
func (c *child) explain(err error) error {
	words := c.tail.text()
	if len(words) == 0 {
		return err
	}
	for i := range words {
		words[i] = wire.Printable(words[i])
	}
	return fmt.Errorf("%w; it said:\n  %s", err, strings.Join(words, "\n  "))
}
