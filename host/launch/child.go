// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/pointsman/pointsman/internal/lines"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A child is the process of a plugin: go-plugin's Runner and package wire's Process. go-plugin gets to read the first
// line of stdout and nothing else: of a line that is longer than 64 KiB it would stop reading, and a line of stderr
// such as {"@message":5} would end the host.
type child struct {
	cmd      *exec.Cmd
	kill     context.CancelFunc // ends the process by SIGKILL
	release  func() bool        // has the process outlive the context of its launch; false: that has ended
	log      func(line string)
	lifeline io.Closer // the other end of its stdin; the plugin ends when it is closed
	first    *io.PipeReader
	exited   chan struct{} // closed when the process has ended and was reaped

	mu   sync.Mutex // guards said
	said []string   // the last lines that it printed; of a panic, the first
}

// newChild returns the process to be of a binary, without what go-plugin adds to its environment.
func newChild(ctx context.Context, b *Binary, c Command) *child {
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	cmd := b.Command(running)
	cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = c.stateDir(), apart(), lastWords
	cmd.Env = append(cmd.Env, c.Env...)
	return &child{cmd: cmd, kill: kill, release: context.AfterFunc(ctx, kill), log: c.Log, exited: make(chan struct{})}
}

// lastWords is how long the output of a process that has ended is read: a program that it started may have inherited
// its stderr.
const lastWords = 200 * time.Millisecond

// Start starts the process, and the goroutines that read its output and wait for its end. They end with it.
func (c *child) Start(context.Context) (err error) {
	if c.lifeline, err = c.cmd.StdinPipe(); err != nil {
		return err
	}
	stdout, out := io.Pipe()
	stderr, errs := io.Pipe()
	first, handshake := io.Pipe()
	c.cmd.Stdout, c.cmd.Stderr, c.first = out, errs, first
	started := make(chan error)
	go func() {
		// The kernel sends PR_SET_PDEATHSIG when the thread ends that started the process, not when the host does
		// (prctl(2)). This one waits for the end of the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		var readers sync.WaitGroup
		readers.Go(func() { c.readStdout(stdout, handshake) })
		readers.Go(func() { lines.Each(limited(stderr), c.print) })
		_ = c.cmd.Wait() // its state says more
		out.Close()
		errs.Close()
		readers.Wait()
		close(c.exited)
	}()
	return <-started
}

// readStdout passes the first line on to go-plugin, and takes others as printed.
func (c *child) readStdout(stdout io.Reader, handshake *io.PipeWriter) {
	defer handshake.Close()
	take := func(line string) {
		_, _ = io.WriteString(handshake, line+"\n") // go-plugin reads stdout to its end, also after a failed handshake
		handshake.Close()
	}
	lines.Each(limited(stdout), func(line string) {
		take(line)
		take = c.print
	})
}

// outputRate is how many bytes the host reads of a plugin's output in a second. A plugin that prints more waits for
// that; its log does not, but drops lines and counts them.
const outputRate = 1 << 20

// limited returns a reader of r that reads no faster than outputRate, with smaller buffers than that.
func limited(r io.Reader) io.Reader {
	return limitedReader{r, rate.NewLimiter(outputRate, outputRate)}
}

type limitedReader struct {
	io.Reader
	limit *rate.Limiter
}

func (l limitedReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	_ = l.limit.WaitN(context.Background(), n) // errs only for more than outputRate
	return n, err
}

// saidLines is how much output of a plugin is kept for the report of its end.
const saidLines = 20

func (c *child) print(line string) {
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) { // a line of its log says nothing of its end
		c.keep(line)
	}
	if c.log != nil {
		c.log(line)
	}
}

func (c *child) keep(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.panicked() && panics(line) {
		c.said = nil
	} else if !c.panicked() && len(c.said) == saidLines {
		c.said = c.said[1:]
	}
	if len(c.said) < saidLines {
		c.said = append(c.said, line)
	}
}

// panicked reports whether a program in Go crashed.
func (c *child) panicked() bool { return len(c.said) > 0 && panics(c.said[0]) }

func panics(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// how says how the process ended, once exited is closed.
func (c *child) how() string {
	state := c.cmd.ProcessState
	if state == nil { // other code has reaped it
		return "ended, and it is not known how"
	}
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return fmt.Sprintf("was ended by signal %d (%s)", int(s.Signal()), s.Signal())
	}
	return fmt.Sprintf("exited with code %d", state.ExitCode())
}

// wait waits at most d for the end of the process, and reports whether it has ended.
func (c *child) wait(d time.Duration) bool {
	select {
	case <-c.exited:
		return true
	case <-time.After(d):
		return false
	}
}

// explain ends a process whose launch failed, and returns err with how the process ended and what it printed last.
func (c *child) explain(err error) error {
	c.kill()
	c.release()
	if c.cmd.Process == nil {
		return unstarted(c.cmd.Args[0], err)
	}
	if c.wait(killLimit) {
		err = fmt.Errorf("it %s: %w", c.how(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	said := ""
	for _, line := range c.said {
		said += "\n  " + wire.Printable(line)
	}
	if said == "" {
		return err
	}
	return fmt.Errorf("%w; it said:%s", err, said)
}

// What follows is package wire's Process.

func (c *child) PID() int                { return c.cmd.Process.Pid }
func (c *child) Exited() <-chan struct{} { return c.exited }
func (c *child) Ending() string {
	switch last := len(c.said) - 1; {
	case last < 0:
		return c.how()
	case c.panicked():
		return c.how() + ": " + c.said[0]
	default:
		return c.how() + ": " + c.said[last]
	}
}

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
