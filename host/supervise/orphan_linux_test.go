// SPDX-License-Identifier: Apache-2.0

package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/test/eventually"
)

// wantAlive fails the test if the process has ended.
func wantAlive(t *testing.T, what string, pid int) {
	t.Helper()
	if _, err := launch.StartTime(pid); err != nil {
		t.Errorf("%s is gone: %v", what, err)
	}
}

// orphaned is a plugin that a former host, another process, left serving, and of which
// nothing is written down any more.
func orphaned(t *testing.T, how string) (y *harness, pid int) {
	t.Helper()
	y = newHarness(t, how)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(y.plugin)
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command(self, string(spec))
	host.Env = append(os.Environ(), behaviour+"=host")
	host.Stderr = os.Stderr
	said, err := host.Output()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(said), &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // else nothing ends it where the test fails
	wantAlive(t, "the plugin of a host that has ended", pid)
	if err := os.Remove(handleFile(y.plugin.StateDir, "")); err != nil {
		t.Fatal(err)
	}
	return y, pid
}

// playHost is a host that begins a plugin, leaves it serving, and says its pid.
func playHost() {
	var p Plugin
	if err := json.Unmarshal([]byte(os.Args[1]), &p); err != nil {
		panic(err)
	}
	s := New(p, quiet())
	s.Leave()
	ctx, end := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	err := eventually.Try(eventually.Timeout, func() error {
		if st := s.Status(); st.State != Serving {
			return fmt.Errorf("the plugin does not serve: %+v", st)
		}
		return nil
	})
	if err != nil {
		panic(err) // the test waits for the process id
	}
	fmt.Println(s.Status().PID)
	if os.Getenv(behaviour) != "host" {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	end()
	<-done
}

// foundOrphan is what EndOrphans found of that process; the zero Orphan: nothing.
func foundOrphan(t *testing.T, stateDir string, pid int, keep ...string) Orphan {
	t.Helper()
	orphans, err := EndOrphans(t.Context(), stateDir, keep, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range orphans {
		if o.PID == pid {
			return o
		}
	}
	return Orphan{}
}

// TestOrphanIsEnded ends the plugin of a former host by its environment alone, also one
// that does not answer.
func TestOrphanIsEnded(t *testing.T) {
	for _, stopped := range []bool{false, true} {
		t.Run(fmt.Sprintf("stopped=%t", stopped), func(t *testing.T) {
			y, left := orphaned(t, "serve")
			if stopped {
				_ = syscall.Kill(left, syscall.SIGSTOP)
			}
			if o := foundOrphan(t, y.plugin.StateDir, left); o.PID == 0 || o.Alone != "" || o.Err != nil || o.Mark.Mode != "test" {
				t.Errorf("found %+v; want it ended", o)
			}
			wantGone(t, left)
		})
	}
}

// TestOrphansThatAreLeftAlone: whatever is not shown to be a plugin of this state
// directory without a host is not touched.
func TestOrphansThatAreLeftAlone(t *testing.T) {
	y, left := orphaned(t, "serve")
	if o := foundOrphan(t, t.TempDir(), left); !o.Other || !strings.Contains(o.Alone, y.plugin.StateDir) {
		t.Errorf("another state directory: %+v", o)
	}
	kept := foundOrphan(t, t.TempDir(), left).Mark.Launch
	if o := foundOrphan(t, y.plugin.StateDir, left, kept); o.PID != 0 {
		t.Errorf("a launch that is written down: %+v", o)
	}
	again, err := EndOrphans(t.Context(), y.plugin.StateDir, nil, true)
	if err != nil || len(again) == 0 {
		t.Errorf("a dry run found %v, %v", again, err)
	}
	wantAlive(t, "the plugin", left)
}

// TestWhichOrphansEnd decides by what is known of a process.
func TestWhichOrphansEnd(t *testing.T) {
	here := place{netns: "net:[1]", uid: 0, pid: 50}
	process := func(change func(*launch.Marked)) launch.Marked {
		m := launch.Marked{PID: 7, Parent: 1, NetNS: "net:[1]", Mark: launch.Mark{Launch: "x", StateDir: "/there", Mode: "test", Host: 40}}
		change(&m)
		return m
	}
	for _, c := range []struct {
		name   string
		change func(*launch.Marked)
		ours   bool
		want   string // in Alone; "ended", or "ignored"
	}{
		{"ours", func(*launch.Marked) {}, true, "ended"},
		{"our own child", func(m *launch.Marked) { m.Parent = 50 }, true, "ignored"},
		{"of a host that lives", func(m *launch.Marked) { m.Parent = 40 }, true, "process 40, lives"},
		{"in another namespace", func(m *launch.Marked) { m.NetNS = "net:[2]" }, true, "another network namespace"},
		{"another user's", func(m *launch.Marked) { m.UID = 1000 }, true, "user 1000"},
		{"another state directory's", func(*launch.Marked) {}, false, `"/there"`},
		{"another one's, elsewhere", func(m *launch.Marked) { m.NetNS = "net:[2]" }, false, "ignored"},
	} {
		o, concerns := here.decide(process(c.change), c.ours)
		got := o.Alone
		switch {
		case !concerns:
			got = "ignored"
		case got == "":
			got = "ended"
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// TestLivingHostKeepsItsPlugin: where the lock on the state directory is of no use, as on a
// file system that has none, a plugin whose host lives is left alone nevertheless.
func TestLivingHostKeepsItsPlugin(t *testing.T) {
	y := newHarness(t, "serve")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := json.Marshal(y.plugin)
	if err != nil {
		t.Fatal(err)
	}
	host := exec.Command(self, string(spec))
	host.Env = append(os.Environ(), behaviour+"=host that stays")
	input, err := host.StdinPipe() // it ends when this closes
	if err != nil {
		t.Fatal(err)
	}
	output, err := host.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { input.Close(); _ = host.Wait() })
	var pid int
	if _, err := fmt.Fscan(output, &pid); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	if o := foundOrphan(t, y.plugin.StateDir, pid); o.Alone != fmt.Sprintf("the host that launched it, process %d, lives", host.Process.Pid) {
		t.Errorf("found %+v; want it left alone", o)
	}
	wantAlive(t, "the plugin", pid)
}

// innocent is a process that has nothing to do with us.
func innocent(t *testing.T, env ...string) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), env...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	return cmd.Process.Pid
}

// TestInnocentProcessIsNotKilled: a process.json that has another process's pid and start
// time costs that process nothing, whatever else the file says; and the plugin is started.
func TestInnocentProcessIsNotKilled(t *testing.T) {
	for name, more := range map[string]string{
		"no launch":         ``,
		"a launch":          `,"launch":"L"`,
		"a launch and more": `,"launch":"L","netns":"net:[1]","exe":"1:2"`,
	} {
		t.Run(name, func(t *testing.T) {
			pid := innocent(t)
			start, err := launch.StartTime(pid)
			if err != nil {
				t.Fatal(err)
			}
			y := newHarness(t, "serve")
			note := fmt.Sprintf(`{"network":"unix","address":"/nowhere","pid":%d,"start":%d,"nonce":"n"%s}`, pid, start, more)
			if err := errors.Join(os.MkdirAll(y.plugin.StateDir, 0o700), os.WriteFile(handleFile(y.plugin.StateDir, ""), []byte(note), 0o600)); err != nil {
				t.Fatal(err)
			}
			if got, err := EndLeftover(t.Context(), y.plugin.StateDir, "", true); got != 0 || !errors.Is(err, launch.ErrNotPlugin) {
				t.Errorf("a dry run: %d, %v", got, err)
			}
			y.run()
			y.untilServing()
			wantAlive(t, "the innocent process", pid)
			y.mu.Lock()
			defer y.mu.Unlock()
			if got := strings.Join(y.transitions, "\n"); !strings.Contains(got, "left alone") {
				t.Errorf("it is not said:\n%s", got)
			}
		})
	}
}

// TestPretenderIsNotKilled: what has the launch in its environment and is another program,
// or is in another namespace, is no plugin.
func TestPretenderIsNotKilled(t *testing.T) {
	_, left := orphaned(t, "serve")
	mark := foundOrphan(t, t.TempDir(), left).Mark
	pid := innocent(t, fmt.Sprintf(`POINTSMAN_PROCESS={"launch":%q}`, mark.Launch))
	start, err := launch.StartTime(pid)
	if err != nil {
		t.Fatal(err)
	}
	netns, _ := launch.NetNS()
	for name, h := range map[string]launch.Handle{
		"another program":   {Launch: mark.Launch, NetNS: netns, Exe: "1:2"},
		"another namespace": {Launch: mark.Launch, NetNS: "net:[1]"},
	} {
		h.Network, h.Address, h.PID, h.Start = "unix", "/nowhere", pid, start
		if err := launch.End(context.Background(), h); !errors.Is(err, launch.ErrNotPlugin) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wantAlive(t, "the pretender", pid)
}

// TestHungOfAnUpgradedBinaryIsEnded: its file was replaced since, and it does not answer;
// by its environment, namespace and inode it is known nevertheless.
func TestHungOfAnUpgradedBinaryIsEnded(t *testing.T) {
	y := newHarness(t, "serve")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	y.plugin.Env = append(y.plugin.Env, behaviour+"=serve")
	copySelf := func() {
		t.Helper()
		data, err := os.ReadFile(self)
		if err == nil {
			err = errors.Join(os.WriteFile(y.plugin.Path+".new", data, 0o700), os.Rename(y.plugin.Path+".new", y.plugin.Path))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	copySelf()
	y.run()
	left := y.untilServing()
	y.host.Leave()
	y.stop()
	_ = syscall.Kill(left.PID, syscall.SIGSTOP)
	copySelf()
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", left.PID))
	if err != nil || !strings.HasSuffix(exe, "(deleted)") {
		t.Fatalf("it executes %s, %v; want a file that is deleted", exe, err)
	}
	y.run()
	y.until("serving again", func(s Status) bool { return s.State == Serving && s.PID != left.PID && s.PID != 0 })
	wantGone(t, left.PID)
}
