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

// A Subject is a dataplane to test: how to start it, and where to send packets to it.
type Subject struct {
	// Start starts a life of the dataplane, like a process. Several checks start a second life
	// with the same state directory, after the first has ended or beside it.
	Start func(ctx context.Context, stateDir string) (sdk.Dataplane, error)

	// Stop ends a life without cleaning up. Nil if nothing has to be ended.
	Stop func(sdk.Dataplane)

	// Path is the file of the plugin, if any. The dataplane's name must match the file name:
	// "pointsman-dataplane-NAME", with .exe on Windows.
	Path string

	Options []byte // Setup.Options for Configure

	// Timeout limits one call. Zero means one minute.
	Timeout time.Duration

	// Only selects checks by name. Nil selects all.
	Only func(check string) bool

	// Testbed is where packets are sent. If nil, a dataplane that serves only addresses of the
	// node gets a Loopback, and for others the checks that need packets are not run.
	Testbed Testbed

	// Disturb removes part of what the dataplane keeps in the kernel, behind its back. Nil if
	// drift is not checked.
	Disturb func(context.Context) error

	// Foreign returns everything on the node that is not the dataplane's, as a text that is
	// stable while nothing changes. Nil if it is not checked.
	Foreign func(context.Context) (string, error)
}

// InProcess returns a Subject in this process. It is connected by both sides of the wire like a
// plugin's process, so everything that Serve does takes place. At the end of a life an
// io.Closer is closed, because there the kernel would close what a process held, such as its
// listeners. A dataplane that is not an io.Closer and declares LimitDiesWithProcess is cleaned
// up instead.
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
			shutdown(remote.(*wire.Remote), 3*time.Second) // a call that does not return is abandoned
			if c, ok := dp.(io.Closer); ok {
				_ = c.Close() // the end of a process has no error either
			} else if limited(d, sdk.LimitDiesWithProcess) {
				cleanUp(context.Background(), dp.(sdk.Dataplane), 10*time.Second)
			}
		},
	}
}

// shutdown asks a plugin to end, waits for a while, and closes the connection.
func shutdown(r *wire.Remote, wait time.Duration) {
	if r.Shutdown(context.Background()) == nil {
		select {
		case <-r.Exited():
		case <-time.After(wait):
		}
	}
	_ = r.Close() // an error does not matter any more
}

// Binary returns a Subject for a plugin's binary. It runs the binary with --listen, as a
// container or systemd does.
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

// A process is a running binary. It implements wire.Process for its Remote.
type process struct {
	cmd    *exec.Cmd
	dir    string // for its socket and its log
	exited chan struct{}
}

func startProcess(path string) (*process, error) {
	path, err := filepath.Abs(path) // do not search PATH
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "conform") // short, because the length of a socket's path is limited
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
		_ = p.cmd.Wait() // Ending reports the result
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

// connect waits up to a minute until the process listens.
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
	_ = p.cmd.Process.Kill() // fails if the process has ended
	<-p.exited
	_ = os.RemoveAll(p.dir) // leftovers are harmless
}

func (p *process) PID() int                { return p.cmd.Process.Pid }
func (p *process) Exited() <-chan struct{} { return p.exited }
func (p *process) Ending() string          { return "ended: " + p.cmd.ProcessState.String() + p.said() }

// said returns the last output of the process, as a part of an error; empty if none.
func (p *process) said() string {
	data, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	text := strings.TrimSpace(string(data[max(0, len(data)-4<<10):]))
	if text == "" {
		return ""
	}
	return "; it said:\n  " + strings.ReplaceAll(wire.Printable(text), "\n", "\n  ")
}
