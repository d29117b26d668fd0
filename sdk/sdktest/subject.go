// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
)

// A Subject is a dataplane to be held to the contract: how to start it, and where to send it packets.
type Subject struct {
	// Start begins a life of it, as a process does. Several checks begin a second
	// one with the same state directory when the first has ended, or beside it.
	Start func(ctx context.Context, stateDir string) (sdk.Dataplane, error)

	// Stop ends that life without cleaning up. Nil: there is nothing to end.
	Stop func(sdk.Dataplane)

	// Path is the file that is held to the contract: the dataplane has to call itself as the name of the file
	// says, "pointsman-dataplane-NAME", and .exe on Windows. Empty: there is none.
	Path string

	Options []byte // for Configure

	// Timeout is how long one call may take. Zero: a minute.
	Timeout time.Duration

	// Only chooses checks by name. Nil: all run.
	Only func(check string) bool

	// Testbed is where packets are sent. Nil: a Loopback for a dataplane that
	// serves only the addresses the node has, and otherwise the checks that need
	// packets are not run.
	Testbed Testbed

	// Disturb takes away, behind the dataplane's back, part of what it keeps in
	// the kernel. Nil: drift is not checked.
	Disturb func(context.Context) error

	// Foreign is everything on the node that is not the dataplane's own, in any
	// text that is the same while nothing changes. Nil: that it is left alone is
	// not checked.
	Foreign func(context.Context) (string, error)
}

// InProcess returns a Subject made in this process, joined by both ends of the wire as
// a plugin's process is, so that everything that Serve does is done. Where the
// kernel would end what a process held, as its listeners, an io.Closer is closed. One
// that is none, and declares that all it serves dies with its process, has to clean up.
func InProcess(d sdk.Description, make func() sdk.Dataplane) Subject {
	var lives sync.Map // from *wire.Remote to the sdk.Dataplane behind it
	return Subject{
		Start: func(ctx context.Context, _ string) (sdk.Dataplane, error) {
			dp := make()
			remote, err := wire.Local(ctx, d, dp)
			if err == nil {
				lives.Store(remote, dp)
			}
			return remote, err
		},
		Stop: func(remote sdk.Dataplane) {
			dp, ok := lives.LoadAndDelete(remote)
			if !ok {
				return
			}
			shutdown(remote.(*wire.Remote), 3*time.Second) // a call that does not return is left behind
			if c, ok := dp.(io.Closer); ok {
				_ = c.Close() // as with a process, there is no answer
			} else if limited(d, sdk.LimitDiesWithProcess) {
				cleanUp(context.Background(), dp.(sdk.Dataplane), 10*time.Second)
			}
		},
	}
}

// shutdown asks a plugin to end, waits a while until it has, and closes the connection.
func shutdown(r *wire.Remote, wait time.Duration) {
	if r.Shutdown(context.Background()) == nil {
		select {
		case <-r.Exited():
		case <-time.After(wait):
		}
	}
	_ = r.Close() // nothing more is to be learnt of it
}

// Binary returns a Subject that is a plugin's binary. It is run with --listen, as a container
// or systemd runs it.
func Binary(path string) Subject {
	var lives sync.Map // from *wire.Remote to its *process
	return Subject{
		Path: path,
		Start: func(ctx context.Context, _ string) (sdk.Dataplane, error) {
			p, err := startProcess(path)
			if err != nil {
				return nil, fmt.Errorf("start %s: %w", path, err)
			}
			remote, err := p.connect(ctx)
			if err != nil {
				defer p.kill()
				return nil, fmt.Errorf("start %s: %w%s", path, err, p.said())
			}
			lives.Store(remote, p)
			return remote, nil
		},
		Stop: func(remote sdk.Dataplane) {
			if p, ok := lives.LoadAndDelete(remote); ok {
				shutdown(remote.(*wire.Remote), time.Second)
				p.(*process).kill()
			}
		},
	}
}

// A process of a binary is the wire.Process of its Remote.
type process struct {
	cmd    *exec.Cmd
	dir    string // of its socket and its log
	exited chan struct{}
}

func startProcess(path string) (*process, error) {
	path, err := filepath.Abs(path) // never looked for in PATH
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "conform") // short: a socket's path has little room
	if err != nil {
		return nil, err
	}
	p := &process{dir: dir, exited: make(chan struct{})}
	p.cmd = exec.Command(path, "--listen", p.address())
	log, err := os.Create(filepath.Join(dir, "log"))
	if err == nil {
		defer log.Close()
		p.cmd.Stderr = log
		err = p.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { // ends with the process
		_ = p.cmd.Wait() // Ending has it
		close(p.exited)
	}()
	return p, nil
}

func (p *process) address() string {
	if runtime.GOOS == "windows" {
		return `\\.\pipe\` + filepath.Base(p.dir)
	}
	return "unix://" + filepath.Join(p.dir, "own", "s")
}

// connect waits until the process listens, for a minute.
func (p *process) connect(ctx context.Context) (*wire.Remote, error) {
	target, err := wire.At(p.address())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		remote, err := wire.Dial(ctx, target, p)
		if err == nil {
			return remote, nil
		}
		select {
		case <-p.exited:
			return nil, errors.New("it " + p.Ending())
		case <-ctx.Done():
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it fails for one that has ended
	<-p.exited
	_ = os.RemoveAll(p.dir) // a leftover does no harm
}

func (p *process) PID() int                { return p.cmd.Process.Pid }
func (p *process) Exited() <-chan struct{} { return p.exited }
func (p *process) Ending() string          { return "ended: " + p.cmd.ProcessState.String() + p.said() }

// said returns the end of what the process printed, as a part of an error; empty: nothing.
func (p *process) said() string {
	data, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	text := strings.TrimSpace(string(data[max(0, len(data)-4<<10):]))
	if text == "" {
		return ""
	}
	return "; it said:\n  " + strings.ReplaceAll(wire.Printable(text), "\n", "\n  ")
}
