// SPDX-License-Identifier: Apache-2.0

package supervise

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

	"go.uber.org/goleak"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/eventually"
)

// behaviour, in the environment, makes this test's binary a plugin.
const behaviour = "SUPERVISE_TEST_PLUGIN"

func TestMain(m *testing.M) {
	switch os.Getenv(behaviour) {
	case "":
		goleak.VerifyTestMain(m)
	case "crash":
		fmt.Fprintln(os.Stderr, "no more coal")
		os.Exit(3)
	default:
		d := sdk.Description{Name: "test", Version: "1.2.3"}
		if os.Getenv(behaviour) == "declares-mortal" {
			d.Limits = []sdk.Limit{sdk.LimitDiesWithProcess}
		}
		wire.Serve(d, &plugin{os.Getenv(behaviour)})
	}
}

// plugin is a dataplane that serves nothing, or refuses to.
type plugin struct{ how string }

func (p *plugin) Configure(context.Context, sdk.Setup) (sdk.Description, error) {
	if p.how == "panic-early" {
		panic("no steam")
	}
	if p.how == "refuse" {
		return sdk.Description{}, &sdk.Refusal{Why: "the points are frozen", Try: "heating them"}
	}
	return sdk.Description{Name: "test", Version: "1.2.3"}, nil
}

// Sync of one that hangs does not return, whatever its context says, and its beats are
// answered.
func (p *plugin) Sync(context.Context, sdk.Update) (sdk.Result, error) {
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

func (p *plugin) Report() sdk.Report { return sdk.Report{Progress: 1} }

func (p *plugin) SetRole(context.Context, sdk.Role) error { return nil }

func (p *plugin) Cleanup(context.Context, sdk.Leftovers) ([]string, error) { return nil, nil }

// A harness has a plugin's binary and its supervisor under test.
type harness struct {
	*testing.T
	plugin Plugin
	host   *Supervisor
	cancel context.CancelFunc
	done   chan struct{}

	mu          sync.Mutex // guards what follows
	sessions    int
	transitions []string
	logged      []string
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

// shortDir is a directory whose name leaves room for a socket's.
func shortDir(t *testing.T) string {
	dir, err := os.MkdirTemp("", "sv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// install puts a plugin of that behaviour in place of the one before.
func (y *harness) install(how string) {
	y.Helper()
	self, err := os.Executable()
	if err != nil {
		y.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s\n", behaviour, how, self)
	if err := os.WriteFile(y.plugin.Path+".new", []byte(script), 0o700); err != nil {
		y.Fatal(err)
	}
	if err := os.Rename(y.plugin.Path+".new", y.plugin.Path); err != nil {
		y.Fatal(err)
	}
}

// run starts a supervisor; it ends with the test, or with stop.
func (y *harness) run() {
	y.host = New(y.plugin, Hooks{
		Start: func(ctx context.Context) error { return ctx.Err() },
		Session: func(ctx context.Context, l Life) error {
			y.mu.Lock()
			y.sessions++
			y.mu.Unlock()
			_, _ = l.Remote.Sync(ctx, sdk.Update{Full: true, To: 1, Node: &sdk.Node{}})
			<-ctx.Done()
			return nil
		},
		Transition: func(tr Transition) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.transitions = append(y.transitions, fmt.Sprintf("%s → %s %s", tr.From, tr.To, tr.Why))
		},
		Log: func(l wire.LogLine) {
			y.mu.Lock()
			defer y.mu.Unlock()
			y.logged = append(y.logged, l.Message)
		},
		Beat: func(*wire.Remote, wire.Vitals) {},
	})
	ctx, cancel := context.WithCancel(context.Background())
	y.cancel, y.done = cancel, make(chan struct{})
	go func() {
		defer close(y.done)
		y.host.Run(ctx)
	}()
	y.Cleanup(y.stop)
}

func (y *harness) stop() {
	y.cancel()
	select {
	case <-y.done:
	case <-time.After(long):
		y.Error("the supervisor does not end")
	}
}

// long is how long a test waits for what comes soon, on a machine that does little else.
const long = 2 * time.Minute

// until waits for something of the status, and returns the status.
func (y *harness) until(what string, ok func(Status) bool) Status {
	y.Helper()
	var s Status
	eventually.SucceedsWithin(y, long, what, func() error {
		if s = y.host.Status(); ok(s) {
			return nil
		}
		y.mu.Lock()
		defer y.mu.Unlock()
		return fmt.Errorf("%+v\n%s", s, strings.Join(y.transitions, "\n"))
	})
	return s
}

func (y *harness) untilServing() Status {
	y.Helper()
	return y.until("serving", func(s Status) bool { return s.State == Serving && s.Vitals.Memory > 0 })
}

func (y *harness) wantSessions(n int) {
	y.Helper()
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.sessions != n {
		y.Errorf("%d sessions, want %d", y.sessions, n)
	}
}

func wantGone(t *testing.T, pid int) {
	t.Helper()
	eventually.TrueWithin(t, long, fmt.Sprintf("process %d has ended", pid), func() bool {
		return syscall.Kill(pid, 0) != nil
	})
}

// listener is the plugin as another supervisor would run it.
func (y *harness) listener(address string) *exec.Cmd {
	y.Helper()
	self, err := os.Executable()
	if err != nil {
		y.Fatal(err)
	}
	cmd := exec.Command(self, "--listen", address)
	cmd.Env = append(os.Environ(), behaviour+"=serve", "GORACE=atexit_sleep_ms=0") // else it ends a second late under -race
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		y.Fatal(err)
	}
	y.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}
