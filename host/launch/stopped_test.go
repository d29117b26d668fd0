// SPDX-License-Identifier: Apache-2.0

//go:build unix

package launch

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk"
	"github.com/pointsman/pointsman/test/actor"
	"github.com/pointsman/pointsman/test/eventually"
)

// stopped returns a plugin that SIGSTOP has stopped: its socket accepts connections, but it answers
// nothing.
func stopped(t *testing.T) *Process {
	t.Helper()
	r := configured(t, launched(t, "serve"), order{})
	halt(t, r)
	return r
}

// halt stops a plugin by SIGSTOP, and waits until its calls end by their deadline.
func halt(t *testing.T, r *Process) {
	t.Helper()
	if err := syscall.Kill(r.child.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually.True(t, "it is stopped", func() bool {
		_, err := r.Vitals(brief(t))
		return errors.Is(err, context.DeadlineExceeded)
	})
}

// Every call of a stopped plugin returns by its deadline.
func TestCallsOfStoppedPluginReturn(t *testing.T) {
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
		{"ExportAffinity", func(ctx context.Context) error { return r.ExportAffinity(ctx, nil) }},
		{"ImportAffinity", func(ctx context.Context) error { return r.ImportAffinity(ctx, nil) }},
		{"a big ImportAffinity", func(ctx context.Context) error { return r.ImportAffinity(ctx, entries) }},
		{"Vitals without a deadline", func(context.Context) error { _, err := r.Vitals(context.Background()); return err }},
	}
	for _, test := range calls {
		if err := test.call(brief(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v; want that the deadline passed", test.name, err)
		}
	}
	r.child.kill()
}

// A plugin that is stopped by SIGSTOP while it shuts down is killed.
func TestStoppedInShutdown(t *testing.T) {
	t.Parallel() // it mostly waits
	r := configured(t, launched(t, "serve"), order{Wait: true, Signal: int(syscall.SIGSTOP)})
	go r.Sync(soon(t), full(1))
	eventually.True(t, "Sync runs", func() bool {
		v, err := r.Vitals(soon(t))
		return err == nil && v.Call == "Sync"
	})
	if err := r.Stop(); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if how := r.Ending(); !strings.HasPrefix(how, "was ended by signal 9") {
		t.Errorf("it %s; want SIGKILL", how)
	}
}

// A plugin ends when its host is killed, even if it is stopped by SIGSTOP.
func TestPluginEndsWithHost(t *testing.T) {
	for name, before := range map[string]func(pid int){
		"running": func(int) {},
		"stopped": func(pid int) { syscall.Kill(pid, syscall.SIGSTOP) },
	} {
		t.Run(name, func(t *testing.T) {
			if name == "stopped" && runtime.GOOS != "linux" {
				t.Skip("needs linux: only its kernel ends a process with its parent")
			}
			c := part("host", "", "POINTSMAN_TEST_DIR="+shortDir(t))
			host := exec.Command(c.Path)
			host.Env = append(os.Environ(), c.Env...)
			host.Stderr = os.Stderr
			stdout, err := host.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := host.Start(); err != nil {
				t.Fatal(err)
			}
			var pid int
			_, err = fmt.Fscan(stdout, &pid)
			if err == nil {
				before(pid)
			}
			host.Process.Kill()
			host.Wait()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { syscall.Kill(pid, syscall.SIGKILL) })
			eventually.True(t, "the plugin has ended", func() bool { return over(pid) })
		})
	}
}

// over reports whether a process has ended. It may still be a zombie until its new parent reaps it.
func over(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return syscall.Kill(pid, 0) != nil
	}
	return strings.HasPrefix(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " Z")
}

// A process that a debugger stops keeps its connection, and its current call continues with it.
func TestStoppedPluginKeepsItsCall(t *testing.T) {
	t.Parallel() // it mostly waits
	r := stopped(t)
	r.Debugged()
	answered := make(chan error, 1)
	go func() { answered <- r.SetRole(t.Context(), sdk.Active) }() // ends with the call
	for range 5 {                                                  // calls with a deadline end, and this one does not with them
		if _, err := r.Vitals(brief(t)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a stopped plugin answers: %v", err)
		}
	}
	select {
	case err := <-answered:
		t.Fatalf("the call that was under way ended: %v", err)
	default:
	}
	if err := syscall.Kill(r.child.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-answered; err != nil {
		t.Errorf("the call that was under way: %v", err)
	}
}
