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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
)

// A demoRun is a run of the demo with a temporary folder of its own.
type demoRun struct {
	cmd *exec.Cmd
	dir string
	out *lockedBuffer
}

// lockedBuffer is a buffer that can be read while a command writes to it.
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

// demoBinary builds the programs of `make demo` into a folder where any user may execute them.
func demoBinary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pointsman-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := errors.Join(built.All(dir), built.Into(dir, "", "./examples/demo")); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "demo")
}

// forUsers runs a test as a plain user and, if this process is root, also as root.
func forUsers(t *testing.T, run func(*testing.T, *syscall.Credential)) {
	t.Run("plain user", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() == 0 {
			run(t, &syscall.Credential{Uid: 65534, Gid: 65534})
		} else {
			run(t, nil)
		}
	})
	t.Run("root", func(t *testing.T) {
		t.Parallel()
		if os.Geteuid() != 0 {
			t.Skip("needs root")
		}
		run(t, nil)
	})
}

// newDemo starts the demo.
func newDemo(t *testing.T, binary string, user *syscall.Credential) *demoRun {
	t.Helper()
	dir, err := os.MkdirTemp("", "pointsman-test-")
	if err == nil && user != nil {
		err = os.Chown(dir, int(user.Uid), int(user.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
	d := &demoRun{cmd: exec.Command(binary), dir: dir, out: new(lockedBuffer)}
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr = dir, d.out, d.out
	d.cmd.Env = append(os.Environ(), "TMPDIR="+dir, d.mark())
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		d.waitForEnd(t)
		_ = os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("the demo said:\n%s", d.out)
		}
	})
	return d
}

// mark is in the environment of the demo and of its host. A plugin inherits TMPDIR only.
func (d *demoRun) mark() string { return "DEMO_OF_TEST=" + d.dir }

// waitForEnd waits until all processes of the demo have exited.
func (d *demoRun) waitForEnd(t *testing.T) {
	t.Helper()
	eventually.Succeeds(t, "the processes of the demo end", func() error {
		if left := d.processes(t, ""); len(left) > 0 {
			return fmt.Errorf("%d run", left)
		}
		return nil
	})
}

// processes returns the demo's processes whose command line contains words.
func (d *demoRun) processes(t *testing.T, words string) (pids []int) {
	t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*")
	if err != nil || len(found) == 0 {
		t.Fatal(found, err)
	}
	for _, dir := range found {
		line, _ := os.ReadFile(dir + "/cmdline") // or the process has ended
		env, _ := os.ReadFile(dir + "/environ")
		pid, err := strconv.Atoi(filepath.Base(dir))
		of := bytes.Contains(env, []byte(d.mark()+"\x00")) || bytes.Contains(env, []byte("TMPDIR="+d.dir+"/"))
		if err == nil && of && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), words) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// waitForOutput waits until the demo has printed part.
func (d *demoRun) waitForOutput(t *testing.T, part string) {
	t.Helper()
	eventually.Succeeds(t, "the demo gets on", func() error {
		if out := d.out.String(); !strings.Contains(out, part) {
			return fmt.Errorf("the output of the demo lacks %q", part)
		}
		return nil
	})
}

// expectNamespaces checks that the processes of a demo that root runs have network and mount namespaces of their own,
// so that rules and the ledger below /run end with the demo.
func (d *demoRun) expectNamespaces(t *testing.T) {
	t.Helper()
	for _, pid := range d.processes(t, "pointsman run") {
		mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
		if err != nil || !strings.Contains(string(mounts), " /run rw,nosuid,nodev") {
			t.Errorf("process %d has no /run of its own: %v\n%s", pid, err, mounts)
		}
		own, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
		if ours, _ := os.Readlink("/proc/self/ns/net"); err != nil || own == ours {
			t.Errorf("process %d is in the network namespace %s of the test: %v", pid, own, err)
		}
	}
}

// expectClean checks that a demo that has ended left no process and no file.
func (d *demoRun) expectClean(t *testing.T) {
	t.Helper()
	if left := d.processes(t, ""); len(left) > 0 {
		t.Errorf("the demo left the processes %d", left)
	}
	if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
		t.Errorf("the demo left %v: %v", left, err)
	}
}

// TestDemo runs the whole demo.
func TestDemo(t *testing.T) {
	t.Parallel()
	binary := demoBinary(t)
	forUsers(t, func(t *testing.T, user *syscall.Credential) {
		d := newDemo(t, binary, user)
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("the demo: %v", err)
		}
		d.expectClean(t)
		out := strings.TrimSpace(d.out.String())
		if last := out[strings.LastIndex(out, "\n")+1:]; !regexp.MustCompile(`^demo: \d{3,} requests, 0 failed$`).MatchString(last) {
			t.Errorf("the last line of the demo is %q", last)
		}
		parts := []string{"web-c gets no more requests", "the kill of the relay cost ", "$ pointsman status", "W002"}
		if os.Geteuid() == 0 && user == nil {
			parts = append(parts, d.modes(t)...)
		}
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("the output of the demo lacks %q", part)
			}
		}
	})
}

// modes returns what the demo of root prints about the modes that this machine can run.
func (d *demoRun) modes(t *testing.T) []string {
	t.Helper()
	if strings.Contains(d.out.String(), "may not make namespaces") {
		t.Skip("root may not make namespaces here: no CAP_SYS_ADMIN")
	}
	if strings.Contains(d.out.String(), "this kernel has no nf_tables") {
		if out, err := exec.Command("nft", "list", "tables").CombinedOutput(); err == nil {
			t.Errorf("nft finds nf_tables here: %s", out)
		}
		t.Skip("this kernel has no nf_tables")
	}
	parts := []string{"nftables serves; userspace drains", "userspace serves; nftables drains"}
	if _, err := exec.LookPath("iptables-nft"); err != nil {
		return append(parts, "iptables is not installed")
	}
	return append(parts, "iptables serves; userspace drains", "userspace serves; iptables drains")
}

// TestDemoInterrupted interrupts the demo in the middle of a step. The demo fails, stops what it has started, and
// removes its files.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	binary := demoBinary(t)
	const swapping = "mode swap nftables"
	for _, tc := range []struct {
		name, at string // once the demo has printed this
		end      func(*testing.T, *demoRun) error
		says     string
	}{
		{"interrupted", "2  Send", func(_ *testing.T, d *demoRun) error { return d.cmd.Process.Signal(syscall.SIGINT) }, "interrupted"},
		{"terminated", "4  Kill", func(_ *testing.T, d *demoRun) error { return d.cmd.Process.Signal(syscall.SIGTERM) }, "interrupted"},
		{"terminated during a swap", swapping, func(_ *testing.T, d *demoRun) error { return d.cmd.Process.Signal(syscall.SIGTERM) }, "interrupted"},
		{"the host ends", "2  Send", func(t *testing.T, d *demoRun) error {
			return syscall.Kill(d.processes(t, "pointsman run")[0], syscall.SIGTERM)
		}, "the host"}, // "ended", or its log where a request failed first: the relay ends with it
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			forUsers(t, func(t *testing.T, user *syscall.Credential) {
				d := newDemo(t, binary, user)
				d.waitForOutput(t, "2  Send")
				apart := os.Geteuid() == 0 && user == nil && !strings.Contains(d.out.String(), "may not make namespaces")
				if apart {
					d.expectNamespaces(t)
				} else if tc.at == swapping {
					t.Skip("only root swaps, where it may make namespaces") // and the demo is killed
				}
				d.waitForOutput(t, tc.at)
				if err := tc.end(t, d); err != nil {
					t.Fatal(err)
				}
				err := d.cmd.Wait()
				if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(d.out.String(), tc.says) {
					t.Errorf("the demo ends with %v; want %q in its output", err, tc.says)
				}
				d.expectClean(t)
			})
		})
	}
}

// TestDemoKilled kills the demo, which cannot clean up then: its processes end by themselves.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	binary := demoBinary(t)
	forUsers(t, func(t *testing.T, user *syscall.Credential) {
		d := newDemo(t, binary, user)
		d.waitForOutput(t, "2  Send")
		if err := d.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = d.cmd.Wait() // it was killed
		d.waitForEnd(t)
	})
}
