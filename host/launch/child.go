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

// A child is the process of a plugin. It implements go-plugin's Runner and package wire's Process. go-plugin gets only the
// first line of stdout: it would stop reading after a line longer than 64 KiB, and a line of stderr such as {"@message":5}
// would crash the host.
type child struct {
	cmd      *exec.Cmd
	kill     context.CancelFunc // sends SIGKILL
	release  func() bool        // detaches the process from the context of its launch; returns false if that context has ended
	log      func(line string)
	lifeline io.Closer // the host's end of its stdin; the plugin ends when this is closed
	first    *io.PipeReader
	exited   chan struct{} // closed when the process has ended and was reaped

	mu     sync.Mutex // guards output
	output []string   // the last lines that it printed; after a panic, the first lines of the panic
}

// newChild returns a process that is not started yet, without the variables that go-plugin adds
// to its environment.
func newChild(ctx context.Context, b *Binary, p Plugin, log func(string)) *child {
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	cmd := b.Command(running)
	cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = p.workDir(), processAttr(), outputGrace
	cmd.Env = append(cmd.Env, p.Env...)
	return &child{cmd: cmd, kill: kill, release: context.AfterFunc(ctx, kill), log: log, exited: make(chan struct{})}
}

// outputGrace limits how long the host reads output after the process has ended: a child of it that still runs may have
// inherited its stderr.
const outputGrace = 200 * time.Millisecond

// Start starts the process and the goroutines that read its output and wait for its end. The
// goroutines end with the process.
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
		// The kernel sends the signal of PR_SET_PDEATHSIG when the thread that started the
		// process ends, not when the host ends (prctl(2)). So this goroutine keeps its thread
		// until the process has ended.
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
		_ = c.cmd.Wait() // ProcessState has the details
		out.Close()
		errs.Close()
		readers.Wait()
		close(c.exited)
	}()
	return <-started
}

// readStdout passes the first line to go-plugin and treats the others as output.
func (c *child) readStdout(stdout io.Reader, handshake *io.PipeWriter) {
	defer handshake.Close()
	take := func(line string) {
		_, _ = io.WriteString(handshake, line+"\n") // cannot block: go-plugin reads stdout to its end, even after a failed handshake
		handshake.Close()
	}
	lines.Each(limited(stdout), func(line string) {
		take(line)
		take = c.print
	})
}

// outputRate limits the plugin output that the host reads, in bytes per second. A plugin that
// prints more has to wait. Its logger does not wait, but drops lines and counts them.
const outputRate = 1 << 20

// limited returns a reader of r that is limited to outputRate. Each read must be smaller than
// that.
func limited(r io.Reader) io.Reader {
	return limitedReader{r, rate.NewLimiter(outputRate, outputRate)}
}

type limitedReader struct {
	io.Reader
	limit *rate.Limiter
}

func (l limitedReader) Read(p []byte) (int, error) {
	n, err := l.Reader.Read(p)
	_ = l.limit.WaitN(context.Background(), n) // fails only if n > outputRate
	return n, err
}

// outputLines is the number of output lines kept for the error when the plugin ends.
const outputLines = 20

func (c *child) print(line string) {
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) { // a structured log line does not explain why the process ended
		c.keep(line)
	}
	c.log(line)
}

func (c *child) keep(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.panicked() && isPanic(line) {
		c.output = nil
	} else if !c.panicked() && len(c.output) == outputLines {
		c.output = c.output[1:]
	}
	if len(c.output) < outputLines {
		c.output = append(c.output, line)
	}
}

// panicked reports whether the output is a Go panic. The caller holds mu, or exited is closed.
func (c *child) panicked() bool { return len(c.output) > 0 && isPanic(c.output[0]) }

func isPanic(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// describeEnd describes how the process ended. Call it only after exited is closed.
func (c *child) describeEnd() string {
	state := c.cmd.ProcessState
	if state == nil { // other code of this program has reaped the process
		return "ended in an unknown way"
	}
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return fmt.Sprintf("was ended by signal %d (%s)", int(s.Signal()), s.Signal())
	}
	return fmt.Sprintf("exited with code %d", state.ExitCode())
}

const (
	stopLimit = 2 * time.Second // for the plugin to end after its stdin was closed; it waits up to 0.7 s for its current call
	killLimit = time.Second     // for the kernel to end a process after SIGKILL
)

// stop kills the plugin, or closes its stdin and kills it two seconds later if it has not ended.
// Rules in the kernel stay. stop returns after little more than three seconds, even if the process
// is in an uninterruptible system call and has not ended.
func (c *child) stop(kill bool) {
	if kill {
		c.kill()
	}
	_ = c.lifeline.Close()
	if !waitClosed(stopLimit, c.exited) {
		c.kill()
		waitClosed(killLimit, c.exited)
	}
}

// explain ends a process whose launch failed, and adds to err how the process ended and its last output.
func (c *child) explain(err error) error {
	c.kill()
	c.release()
	if c.cmd.Process == nil {
		return explainStart(err)
	}
	if waitClosed(killLimit, c.exited) {
		err = fmt.Errorf("it %s: %w", c.describeEnd(), err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	said := ""
	for _, line := range c.output {
		said += "\n  " + wire.Printable(line)
	}
	if said == "" {
		return err
	}
	return fmt.Errorf("%w; it said:%s", err, said)
}

// These methods implement package wire's Process.

func (c *child) PID() int                { return c.cmd.Process.Pid }
func (c *child) Exited() <-chan struct{} { return c.exited }
func (c *child) Ending() string {
	switch last := len(c.output) - 1; {
	case last < 0:
		return c.describeEnd()
	case c.panicked():
		return c.describeEnd() + ": " + c.output[0]
	default:
		return c.describeEnd() + ": " + c.output[last]
	}
}

// These methods implement go-plugin's runner.Runner.

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
