// SPDX-License-Identifier: Apache-2.0

package sdktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

// Binary returns a Subject that is a plugin's binary. It is run with --listen, as a container
// or systemd runs it.
func Binary(path string) Subject {
	var lives sync.Map // from *wire.Remote to its *binaryLife
	return Subject{
		Path: path, Name: NameOf(path),
		Start: func(ctx context.Context, _ string) (sdk.Dataplane, error) {
			life, err := startBinary(path)
			if err != nil {
				return nil, fmt.Errorf("start %s: %w", path, err)
			}
			remote, err := life.connect(ctx)
			if err != nil {
				life.stop(nil)
				return nil, fmt.Errorf("start %s: %w%s", path, err, life.output.quoted())
			}
			lives.Store(remote, life)
			return remote, nil
		},
		Stop: func(dp sdk.Dataplane) {
			if life, ok := lives.LoadAndDelete(dp); ok {
				life.(*binaryLife).stop(dp.(*wire.Remote))
			}
		},
	}
}

// Listening returns a Subject that is a plugin which runs by itself and listens at an address, as of
// wire.At. second is the address of another process of the plugin; empty: there is none. Both are left running.
func Listening(address, second string) Subject {
	attach := func(address string) func(context.Context, string) (sdk.Dataplane, error) {
		return func(ctx context.Context, _ string) (sdk.Dataplane, error) {
			target, err := wire.At(address)
			if err != nil {
				return nil, err
			}
			return wire.Attach(ctx, target)
		}
	}
	s := Subject{
		Path: address, Single: true, Start: attach(address),
		Stop: func(dp sdk.Dataplane) { _ = dp.(*wire.Remote).Close() }, // the check has said what is wrong with it
	}
	if second != "" {
		s.Second = attach(second)
	}
	return s
}

// NameOf returns what the dataplane in a binary has to call itself, by the name of the file:
// "pointsman-dataplane-NAME", and .exe on Windows. Of a file that is called otherwise it returns the
// whole name: a host does not find it.
func NameOf(path string) string {
	return strings.TrimPrefix(strings.TrimSuffix(filepath.Base(path), ".exe"), "pointsman-dataplane-")
}

// A binaryLife is one process of a binary. It is the wire.Process of its Remote.
type binaryLife struct {
	cmd    *exec.Cmd
	dir    string // of its socket
	output output
	exited chan struct{}
}

func startBinary(path string) (*binaryLife, error) {
	path, err := filepath.Abs(path) // never looked for in PATH
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "conform") // short: a socket's path has little room
	if err != nil {
		return nil, err
	}
	l := &binaryLife{dir: dir, exited: make(chan struct{})}
	l.cmd = exec.Command(path, "--listen", l.address())
	l.cmd.Stderr = &l.output
	if err := l.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { // ends with the process
		_ = l.cmd.Wait() // Ending has it
		close(l.exited)
	}()
	return l, nil
}

func (l *binaryLife) address() string {
	if runtime.GOOS == "windows" {
		return `\\.\pipe\` + filepath.Base(l.dir)
	}
	return "unix://" + filepath.Join(l.dir, "own", "s")
}

// comesUp is how long a binary may take until it listens.
const comesUp = time.Minute

// connect waits until the process listens.
func (l *binaryLife) connect(ctx context.Context) (*wire.Remote, error) {
	target, err := wire.At(l.address())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, comesUp)
	defer cancel()
	for {
		remote, err := wire.Dial(ctx, target, l)
		if err == nil {
			return remote, nil
		}
		select {
		case <-l.exited:
			return nil, errors.New("it " + l.Ending())
		case <-ctx.Done():
			return nil, err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// stop asks the process to end, and a second later ends it.
func (l *binaryLife) stop(remote *wire.Remote) {
	if remote != nil {
		_ = remote.Shutdown(context.Background()) // what does not answer is killed
		defer remote.Close()
		select {
		case <-l.exited:
		case <-time.After(time.Second):
		}
	}
	_ = l.cmd.Process.Kill() // it fails for one that has ended
	<-l.exited
	_ = os.RemoveAll(l.dir) // a leftover does no harm
}

func (l *binaryLife) PID() int                { return l.cmd.Process.Pid }
func (l *binaryLife) Exited() <-chan struct{} { return l.exited }
func (l *binaryLife) Ending() string {
	return "ended: " + l.cmd.ProcessState.String() + l.output.quoted()
}

// An output keeps the end of what a process prints.
type output struct {
	mu   sync.Mutex // guards text
	text []byte
}

// maxOutput is how much of it is kept, in bytes.
const maxOutput = 4 << 10

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text = append(o.text, p...)
	if over := len(o.text) - maxOutput; over > 0 {
		o.text = bytes.Clone(o.text[over:])
	}
	return len(p), nil
}

// quoted returns the output as a part of an error; empty: there is none.
func (o *output) quoted() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	text := strings.TrimSpace(string(o.text))
	if text == "" {
		return ""
	}
	return "; it said:\n  " + strings.ReplaceAll(wire.Printable(text), "\n", "\n  ")
}
