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
	"syscall"
	"testing"

	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
)

// A demoRun is a run of the demo with a temporary folder of its own, as the user of the test.
type demoRun struct {
	*testing.T
	cmd *exec.Cmd
	dir string
}

// newDemo builds the programs of `make demo` and starts the demo.
func newDemo(t *testing.T) demoRun {
	t.Helper()
	bin := t.TempDir()
	dir, err := os.MkdirTemp("", "pointsman-test-") // short: the path of a socket has little room
	if err := errors.Join(err, built.All(bin), built.Into(bin, "", "./examples/demo")); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(bin, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	d := demoRun{t, exec.Command(filepath.Join(bin, "demo")), dir}
	d.cmd.Dir, d.cmd.Stdout, d.cmd.Stderr, d.cmd.Env = dir, log, log, append(os.Environ(), "TMPDIR="+dir, "DEMO_OF_TEST="+dir)
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = d.cmd.Process.Kill()
		_ = d.cmd.Wait()
		eventually.True(t, "the processes of the demo end", func() bool { return len(d.processes("")) == 0 })
		_ = os.RemoveAll(dir)
		if t.Failed() {
			t.Logf("the demo said:\n%s", d.out())
		}
	})
	return d
}

// out returns what the demo has printed.
func (d demoRun) out() string { return read(d.T, filepath.Join(filepath.Dir(d.cmd.Path), "log")) }

// processes returns the folders in /proc of the demo's processes whose command line contains words.
func (d demoRun) processes(words string) (dirs []string) {
	found, _ := filepath.Glob("/proc/[0-9]*") // the pattern is valid
	for _, dir := range found {
		line, _ := os.ReadFile(dir + "/cmdline") // or the process has ended
		env, _ := os.ReadFile(dir + "/environ")
		of := bytes.Contains(env, []byte("DEMO_OF_TEST="+d.dir+"\x00")) || bytes.Contains(env, []byte("TMPDIR="+d.dir)) // a plugin inherits TMPDIR only
		if of && strings.Contains(strings.ReplaceAll(string(line), "\x00", " "), words) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// prints waits until the demo has printed part.
func (d demoRun) prints(part string) {
	d.Helper()
	eventually.True(d, "the demo prints "+part, func() bool { return strings.Contains(d.out(), part) })
}

// isApart reports whether the demo has made namespaces, which only root may.
func (d demoRun) isApart() bool {
	return os.Geteuid() == 0 && !strings.Contains(d.out(), "may not make namespaces")
}

// expectClean checks that a demo that has ended left no process and no file.
func (d demoRun) expectClean() {
	d.Helper()
	left, err := os.ReadDir(d.dir)
	if pids := d.processes(""); len(pids) > 0 || len(left) > 0 || err != nil {
		d.Errorf("the demo left the processes %q and the files %v: %v", pids, left, err)
	}
}

// TestDemo runs the whole demo. make demo runs it as other users, too.
func TestDemo(t *testing.T) {
	t.Parallel()
	d := newDemo(t)
	if err := d.cmd.Wait(); err != nil {
		t.Errorf("the demo: %v", err)
	}
	d.expectClean()
	parts := []string{`\ndemo: \d{3,} requests, 0 failed\n$`, "web-c gets no more requests", "the kill of the relay cost ", `\$ pointsman status`, "W002"}
	if d.isApart() && !strings.Contains(d.out(), "this kernel has no nf_tables") {
		parts = append(parts, "nftables serves; userspace drains", "userspace serves; nftables drains", "iptables is not installed|userspace serves; iptables drains")
	}
	for _, part := range parts {
		if !regexp.MustCompile(part).MatchString(d.out()) {
			t.Errorf("the output of the demo lacks %q", part)
		}
	}
}

// TestDemoEnds ends the demo in the middle of a step. It fails, stops what it has started, and removes its files. If it
// is killed, its processes end by themselves.
func TestDemoEnds(t *testing.T) {
	t.Parallel()
	const swapping = "mode swap nftables"
	for _, tc := range []struct {
		name, at string // once the demo has printed this
		signal   syscall.Signal
		to       string // a process; empty: the demo
		says     string
	}{
		{"interrupted", "2  Send", syscall.SIGINT, "", "interrupted"},
		{"terminated during a swap", swapping, syscall.SIGTERM, "", "interrupted"},
		{"the host ends", "2  Send", syscall.SIGTERM, "pointsman run", "the host"}, // "ended", or its log where a request failed first
		{"killed", "2  Send", syscall.SIGKILL, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			d := newDemo(t)
			d.prints("2  Send")
			pid, host := d.cmd.Process.Pid, d.processes("pointsman run")[0]
			if own, err := os.Readlink("/proc/self/ns/net"); d.isApart() {
				if its, failed := os.Readlink(host + "/ns/net"); its == own || err != nil || failed != nil {
					t.Errorf("the host of root's demo is in the network namespace of the machine: %v, %v", err, failed)
				}
			} else if tc.at == swapping {
				t.Skip("needs root that may make namespaces: only that demo swaps")
			}
			d.prints(tc.at)
			if tc.to != "" {
				_, _ = fmt.Sscanf(host, "/proc/%d", &pid) // by the pattern
			}
			if err := syscall.Kill(pid, tc.signal); err != nil {
				t.Fatal(err)
			}
			err := d.cmd.Wait()
			if tc.signal == syscall.SIGKILL {
				return
			}
			if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(d.out(), tc.says) {
				t.Errorf("the demo ends with %v; want %q in its output", err, tc.says)
			}
			d.expectClean()
		})
	}
}
