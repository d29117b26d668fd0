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
	release  func() bool        // detaches the process from the context of its launch; false if that has ended
	log      func(line string)
	lifeline io.Closer // our end of its stdin; the plugin ends when it is closed
	first    *io.PipeReader
	exited   chan struct{} // closed when the process has ended and was reaped

	mu   sync.Mutex // guards said
	said []string   // the last lines that it printed; after a panic, the first lines of that
}

// newChild returns a process that is not started yet, without the variables that go-plugin adds
// to its environment.
func newChild(ctx context.Context, b *Binary, p Plugin, log func(string)) *child {
	running, kill := context.WithCancel(context.WithoutCancel(ctx))
	cmd := b.Command(running)
	cmd.Dir, cmd.SysProcAttr, cmd.WaitDelay = p.workDir(), apart(), lastWords
	cmd.Env = append(cmd.Env, p.Env...)
	return &child{cmd: cmd, kill: kill, release: context.AfterFunc(ctx, kill), log: log, exited: make(chan struct{})}
}

// lastWords limits how long we read output after the process has ended: its stderr may have
// been inherited by a child that still runs.
const lastWords = 200 * time.Millisecond

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

// saidLines is the number of output lines kept for the error when the plugin ends.
const saidLines = 20

func (c *child) print(line string) {
	if !strings.HasPrefix(line, "{") || !json.Valid([]byte(line)) { // a structured log line does not explain why the process ended
		c.keep(line)
	}
	c.log(line)
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

// panicked reports whether the output is that of a Go program that crashed.
func (c *child) panicked() bool { return len(c.said) > 0 && panics(c.said[0]) }

func panics(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
}

// how describes how the process ended. Call it after exited is closed.
func (c *child) how() string {
	state := c.cmd.ProcessState
	if state == nil { // other code has waited for the process
		return "ended in an unknown way"
	}
	if s, ok := state.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return fmt.Sprintf("was ended by signal %d (%s)", int(s.Signal()), s.Signal())
	}
	return fmt.Sprintf("exited with code %d", state.ExitCode())
}

const (
	stopLimit = 2 * time.Second // after stdin was closed: the plugin waits up to 0.7 s for its current call
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
	if !closesWithin(stopLimit, c.exited) {
		c.kill()
		closesWithin(killLimit, c.exited)
	}
}

// explain ends a process whose launch failed, and returns err with how the process ended and
// its last output.
func (c *child) explain(err error) error {
	c.kill()
	c.release()
	if c.cmd.Process == nil {
		return unstarted(err)
	}
	if closesWithin(killLimit, c.exited) {
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

// These methods implement package wire's Process.

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
