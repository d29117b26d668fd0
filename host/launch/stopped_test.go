// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/sdk/wire"
	"github.com/pointsman/pointsman/test/actor"
	"github.com/pointsman/pointsman/test/eventually"
)

// stopped is a plugin that the kernel has stopped: it is there, its socket takes
// connections, and nothing is ever answered.
func stopped(t *testing.T) *Plugin {
	t.Helper()
	r := configured(t, launched(t, "serve"), order{})
	halt(t, r)
	return r
}

// halt has the kernel stop a plugin, and waits until it has: its calls are not
// answered, and return by their deadline.
func halt(t *testing.T, r *Plugin) {
	t.Helper()
	if err := r.process.signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it is stopped", func() bool {
		_, err := r.Vitals(brief(t))
		return errors.Is(err, context.DeadlineExceeded)
	})
}

// Every call of a stopped plugin returns by its deadline.
func TestEveryCallOfAStoppedPluginReturns(t *testing.T) {
	t.Parallel() // it mostly waits
	r := stopped(t)
	entries := make([]sdk.AffinityEntry, 100_000)
	for i := range entries {
		svc := actor.BulkService(i, 1)
		entries[i] = sdk.AffinityEntry{Name: svc.Name, Client: svc.Cluster[0].Addr.Addr(), Endpoint: svc.Cluster[0].Addr}
	}
	calls := []struct {
		name string
		call func(context.Context) error
	}{
		{"Configure", func(ctx context.Context) error { _, err := r.Configure(ctx, sdk.Setup{}); return err }},
		{"Sync", func(ctx context.Context) error { _, err := r.Sync(ctx, full(1)); return err }},
		{"a big Sync", func(ctx context.Context) error { _, err := r.Sync(ctx, actor.Bulk(5000, 20)); return err }},
		{"SetRole", func(ctx context.Context) error { return r.SetRole(ctx, sdk.Active) }},
		{"Cleanup", func(ctx context.Context) error { _, err := r.Cleanup(ctx, sdk.Leftovers{}); return err }},
		{"Vitals", func(ctx context.Context) error { _, err := r.Vitals(ctx); return err }},
		{"Inspect", func(ctx context.Context) error { return r.Inspect(ctx, nil) }},
		{"Trace", func(ctx context.Context) error {
			_, err := r.Trace(ctx, sdk.Packet{From: netip.MustParseAddrPort("10.0.0.1:0"), To: netip.MustParseAddrPort("10.0.0.2:80")})
			return err
		}},
		{"Stuck", func(ctx context.Context) error { return r.ExportAffinity(ctx, nil) }},
		{"Seed", func(ctx context.Context) error { return r.ImportAffinity(ctx, nil) }},
		{"a big Seed", func(ctx context.Context) error { return r.ImportAffinity(ctx, entries) }},
		{"Attach", func(ctx context.Context) error { _, err := Attach(ctx, r.Handle()); return err }},
		{"Vitals without a deadline", func(context.Context) error { _, err := r.Vitals(context.Background()); return err }},
	}
	for _, test := range calls {
		start := time.Now()
		err := test.call(brief(t))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v; want that the deadline passed", test.name, err)
		}
		if took := time.Since(start); took > 30*time.Second {
			t.Errorf("%s took %s", test.name, took)
		}
	}
	if err := r.Logs(brief(t), func(wire.LogLine) {}); err != nil {
		t.Errorf("Logs: %v; want that it ends with its context", err)
	}
	r.process.kill(syscall.SIGKILL)
}

// A plugin that is stopped while it shuts down is ended all the same.
func TestStoppedInShutdown(t *testing.T) {
	t.Parallel() // it mostly waits
	r := configured(t, launched(t, "serve"), order{Wait: true, Signal: int(syscall.SIGSTOP)})
	go r.Sync(soon(t), full(1))
	eventually.True(t, "Sync runs", func() bool {
		v, err := r.Vitals(soon(t))
		return err == nil && v.Call == "Sync"
	})
	start := time.Now()
	if err := r.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("Stop took %s", took)
	}
	if e := r.Exit(); e.Signal != syscall.SIGKILL {
		t.Errorf("it %s; want SIGKILL", e)
	}
}

// A host finds what another left behind, in whatever state, and ends it.
func TestEnd(t *testing.T) {
	t.Parallel() // it mostly waits
	stop := func(pid int) { syscall.Kill(pid, syscall.SIGSTOP) }
	kill := func(pid int) { syscall.Kill(pid, syscall.SIGKILL) }
	for name, before := range map[string]func(pid int){"running": func(int) {}, "stopped": stop, "dead": kill} {
		t.Run(name, func(t *testing.T) {
			h := hostKilled(t, "serve")
			before(h.PID)
			if err := End(context.Background(), h); err != nil {
				t.Error(err)
			}
			if _, err := StartTime(h.PID); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("process %d after End: %v; want that it is done", h.PID, err)
			}
			if _, err := os.Stat(h.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s after End: %v; want that it is gone", h.Dir, err)
			}
		})
	}
}

// A zombie has ended, though its pid still takes signals: where the host is the
// first process of a container, nobody else reaps what a former host left.
func TestAZombieHasEnded(t *testing.T) {
	c := part("no-handshake", "")
	child := exec.Command(c.Path)
	child.Env = append(os.Environ(), c.Env...)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	p, err := watch(child.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	child.Process.Kill() // and nobody waits for it
	select {
	case <-p.exited:
	case <-soon(t).Done():
		t.Error("its end was not seen")
	}
	if _, err := watch(child.Process.Pid, 0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("watch of a zombie: %v; want that it is done", err)
	}
	child.Wait()
}

// A process that a debugger has stopped keeps its connection, and the call that it was in the
// middle of goes on when it does.
func TestStoppedPluginKeepsItsCall(t *testing.T) {
	t.Parallel() // it mostly waits
	r := stopped(t)
	r.Debugged()
	answered := make(chan error, 1)
	go func() { answered <- r.SetRole(t.Context(), sdk.Active) }() // ends with the call
	select {
	case err := <-answered:
		t.Fatalf("a stopped plugin answered: %v", err)
	case <-time.After(15 * time.Second): // longer than keepalives would take it for alive
	}
	if err := r.process.signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-answered:
		if err != nil {
			t.Errorf("the call that was under way: %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("the call that was under way is not answered within a minute")
	}
}
