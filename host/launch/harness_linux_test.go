// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/actor"
	"github.com/pointsman/pointsman/test/eventually"
)

func init() {
	parts["crash"] = func() { fmt.Fprintln(os.Stderr, "no more coal"); os.Exit(3) }
	for _, how := range []string{"watched", "hang", "deaf", "panic", "panic-early", "refuse"} {
		parts[how] = func() { wire.Serve(sdk.Description{Name: "test", Version: "1.2.3"}, &watchedPlugin{how}) }
	}
}

// A watchedPlugin is a dataplane without Services, or one that fails in the given way.
type watchedPlugin struct{ how string }

func (p *watchedPlugin) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	if p.how == "panic-early" {
		panic("no steam")
	}
	if p.how == "refuse" {
		return sdk.Description{}, &sdk.Refusal{Why: "the points are frozen", Try: "heating them"}
	}
	return sdk.Description{Name: "test", Version: "1.2.3"}, nil
}

// Sync of a plugin that hangs does not return, but the plugin answers heartbeats.
func (p *watchedPlugin) Sync(context.Context, sdk.Update) (sdk.Result, error) {
	switch p.how {
	case "hang":
		select {}
	case "panic":
		panic("no steam")
	case "deaf": // its connection is lost
		for fd := range 64 {
			_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
	}
	return sdk.Result{}, nil
}

func (p *watchedPlugin) Report() sdk.Report { return sdk.Report{Progress: 1} }

func (p *watchedPlugin) SetRole(context.Context, sdk.Role) error { return nil }

func (p *watchedPlugin) Cleanup(context.Context, sdk.Leftovers) ([]string, error) { return nil, nil }

// A harness has a plugin's binary, and its process.
type harness struct {
	*testing.T
	plugin  Plugin
	process *Process
	over    chan error
	ended   chan error // receives why the process ended

	mu     sync.Mutex // guards the fields below
	beats  int
	doubts []string
	logged []string
}

func newHarness(t *testing.T, how string) *harness {
	t.Helper()
	dir := t.TempDir()
	y := &harness{T: t, plugin: Plugin{
		Name:      "test",
		Path:      filepath.Join(dir, Prefix+"test"),
		StateDir:  filepath.Join(dir, "state"),
		SocketDir: shortDir(t),
	}}
	y.install(how)
	return y
}

// install replaces the binary by a plugin that fails in the given way.
func (y *harness) install(how string) {
	y.Helper()
	self, env := actor.As(how)
	script := fmt.Sprintf("#!/bin/sh\n%s exec %s\n", strings.Join(env, " "), self)
	if err := os.WriteFile(y.plugin.Path+".new", []byte(script), 0o700); err != nil {
		y.Fatal(err)
	}
	if err := os.Rename(y.plugin.Path+".new", y.plugin.Path); err != nil {
		y.Fatal(err)
	}
}

// start starts a process, or connects to one that runs.
func (y *harness) start() error {
	binary, err := y.plugin.Open()
	if err != nil {
		return err
	}
	if binary != nil {
		defer binary.Close()
	}
	process, err := y.plugin.Start(y.Context(), binary, nil, func(l wire.LogLine) {
		y.mu.Lock()
		defer y.mu.Unlock()
		y.logged = append(y.logged, l.Message)
	})
	if err != nil {
		return err
	}
	over, ended := make(chan error, 2), make(chan error, 1)
	y.process, y.over, y.ended = process, over, ended
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the process
		ended <- process.Watch(ctx, over, func(v wire.Vitals, doubt string) {
			y.mu.Lock()
			defer y.mu.Unlock()
			if doubt != "" {
				y.doubts = append(y.doubts, doubt)
			} else if v.Memory > 0 {
				y.beats++
			}
		})
		close(ended)
	}()
	y.Cleanup(func() { cancel(); <-ended })
	return nil
}

// run starts a process, which must succeed, and sends it an update.
func (y *harness) run() {
	y.Helper()
	if err := y.start(); err != nil {
		y.Fatal(err)
	}
	process := y.process
	go func() { _, _ = process.Sync(context.Background(), sdk.Update{Full: true, To: 1, Node: &sdk.Node{}}) }() // ends with the process
}

// long is a generous limit for conditions that take milliseconds on an idle machine.
const long = 2 * time.Minute

// untilStarted connects to a plugin once it listens.
func (y *harness) untilStarted() {
	y.Helper()
	eventually.SucceedsWithin(y, long, "connected", y.start)
}

// untilBeats waits until the process has answered.
func (y *harness) untilBeats() {
	y.Helper()
	eventually.TrueWithin(y, long, "the process answers", func() bool { y.mu.Lock(); defer y.mu.Unlock(); return y.beats > 0 })
}

// wantEnd waits for the end of the process. The reason must contain a text.
func (y *harness) wantEnd(text string) {
	y.Helper()
	select {
	case why := <-y.ended:
		if why == nil || !strings.Contains(why.Error(), text) {
			y.Errorf("it ended of %v, not of %q", why, text)
		}
	case <-time.After(long):
		y.Fatal("the process does not end")
	}
	if y.plugin.Address == "" {
		wantGone(y.T, y.process.Hello().PID)
	}
}

func wantGone(t *testing.T, pid int) {
	t.Helper()
	eventually.TrueWithin(t, long, fmt.Sprintf("process %d has ended", pid), func() bool {
		return syscall.Kill(pid, 0) != nil
	})
}

// listener runs the plugin as systemd would.
func (y *harness) listener(address string) *exec.Cmd {
	y.Helper()
	self, env := actor.As("watched")
	cmd := exec.Command(self, "--listen", address)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		y.Fatal(err)
	}
	y.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}
