// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/test/eventually"
)

// A show is a run of the demo, with a folder of its own for what it writes.
type show struct {
	cmd *exec.Cmd
	dir string
	out *lockedBuffer
}

// lockedBuffer is a buffer that may be read while a command writes to it.
type lockedBuffer struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// newShow starts the demo of the binaries as they are built.
func newShow(t *testing.T) *show {
	t.Helper()
	return started(t, filepath.Join(binaries(t), "pointsman"), "demo", "--plugin-dir", filepath.Join(binaries(t), "plugins"))
}

// newInstalledShow starts the demo of an installation, which has no repository near it.
func newInstalledShow(t *testing.T) *show {
	t.Helper()
	prefix := t.TempDir()
	for _, dir := range []string{"bin", "libexec/pointsman"} {
		if err := os.MkdirAll(filepath.Join(prefix, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(prefix, "bin", "pointsman")
	install(t, filepath.Join(binaries(t), "pointsman"), binary)
	plugins, err := filepath.Glob(filepath.Join(binaries(t), "plugins", "*"))
	if err != nil || len(plugins) == 0 {
		t.Fatal(plugins, err)
	}
	for _, plugin := range plugins {
		install(t, plugin, filepath.Join(prefix, "libexec", "pointsman", filepath.Base(plugin)))
	}
	return started(t, binary, "demo")
}

// install copies a binary.
func install(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, content, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// started runs a command in an empty folder.
func started(t *testing.T, name string, args ...string) *show {
	t.Helper()
	d := &show{dir: t.TempDir(), out: new(lockedBuffer)}
	d.cmd = exec.Command(name, args...)
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = d.dir, d.out, d.out
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.dir)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	return d
}

// clean checks that nothing is left in the demo's folder.
func (d *show) clean(t *testing.T) {
	t.Helper()
	if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v: %v", left, err)
	}
}

// TestDemo runs three demos at a time, each to its end.
func TestDemo(t *testing.T) {
	t.Parallel()
	for _, d := range []*show{newShow(t), newShow(t), newInstalledShow(t)} {
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("the demo said:\n%s", d.out)
			}
		})
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("the demo: %v", err)
			continue
		}
		lines := strings.Split(strings.TrimSpace(d.out.String()), "\n")
		if last := lines[len(lines)-1]; !regexp.MustCompile(`^demo: \d{3,} requests, 0 failed$`).MatchString(last) {
			t.Errorf("the demo's last line is %q", last)
		}
		for _, part := range []string{"web-c got its last request", "Served again", "in flight through it that were lost: ", "$ pointsman status", "W002"} {
			if !strings.Contains(d.out.String(), part) {
				t.Errorf("the demo says nothing with %q", part)
			}
		}
		if strings.Contains(d.out.String(), "\x1b") {
			t.Error("the demo draws where there is no terminal")
		}
		d.clean(t)
	}
}

// TestDemoInterrupted stops what it has started, and says so.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	d := newShow(t)
	eventually.Succeeds(t, "the demo begins", func() error {
		if out := d.out.String(); !strings.Contains(out, "2  Requests") {
			return fmt.Errorf("it says\n%s", out)
		}
		return nil
	})
	if os.Geteuid() == 0 {
		d.ledger(t)
	}
	if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := d.cmd.Wait()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(d.out.String(), "interrupted") {
		t.Errorf("the demo ends with %v and says:\n%s", err, d.out)
	}
	d.clean(t)
	eventually.Succeeds(t, "no process is left", func() error {
		if left := d.left(t); left != "" {
			return errors.New(left)
		}
		return nil
	})
}

// ledger requires that the demo, in its network namespace, has a ledger that ends with it.
func (d *show) ledger(t *testing.T) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []string
	for _, thread := range threads {
		pids, _ := os.ReadFile(thread) // or the thread has ended, and has none
		children = append(children, strings.Fields(string(pids))...)
	}
	for _, pid := range children {
		mounts, _ := os.ReadFile("/proc/" + pid + "/mountinfo") // or it has ended
		if strings.Contains(string(mounts), " "+ledger.Dir+" ") {
			return
		}
	}
	t.Errorf("no process of %q, which the demo started, has a mount at %s", children, ledger.Dir)
}

// left is a process of the demo's; none: empty.
func (d *show) left(t *testing.T) string {
	t.Helper()
	for _, pid := range processes(t) {
		cmdline, _ := os.ReadFile(filepath.Join("/proc", pid, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", pid, "environ"))
		if strings.Contains(string(cmdline)+string(environ), d.dir) {
			return fmt.Sprintf("%s %q", pid, cmdline)
		}
	}
	return ""
}

// processes are the ids of all processes.
func processes(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return found
}
