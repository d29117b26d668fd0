// SPDX-License-Identifier: Apache-2.0

package dataplanes

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/launch"
	"github.com/pointsman/pointsman/test/eventually"
)

// A machine is a model kernel, and the processes on it.
type machine struct {
	*testing.T
	*rand.Rand
	dir    string
	tmp    string // for the plugins' sockets; its path is short
	kernel modelKernel
	host   *exec.Cmd // nil if none runs
	ended  chan struct{}

	told  sync.Mutex // guards story; a host in this process reports from several goroutines
	story []string
}

func newMachine(t *testing.T, seed uint64) *machine {
	t.Helper()
	m := &machine{T: t, Rand: rand.New(rand.NewPCG(seed, 14)), dir: t.TempDir()}
	m.kernel = modelKernel{filepath.Join(m.dir, "kernel")}
	tmp, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(tmp) })
	m.tmp = tmp
	self, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Mkdir(m.kernel.dir, 0o700), os.Mkdir(filepath.Join(m.dir, "state"), 0o700))
	}
	for _, mode := range []string{"a", "b"} {
		err = errors.Join(err, copyFile(self, filepath.Join(m.dir, launch.Prefix+mode)))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.end)
	return m
}

// copyFile makes to a hard link of from, or else a copy.
func copyFile(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	return errors.Join(err, os.WriteFile(to, data, 0o700))
}

func (m *machine) did(format string, args ...any) {
	m.told.Lock()
	defer m.told.Unlock()
	m.story = append(m.story, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

func (m *machine) write(file, text string) {
	m.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, file), []byte(text), 0o600); err != nil {
		m.Fatal(err)
	}
}

// start starts a host, if none runs.
func (m *machine) start() {
	m.Helper()
	if m.host != nil {
		return
	}
	log, err := os.OpenFile(filepath.Join(m.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.Fatal(err)
	}
	defer log.Close()
	self, _ := os.Executable()
	m.host, m.ended = exec.Command(self), make(chan struct{})
	m.host.Env = append(os.Environ(), modelHostEnv+"="+m.dir, "TMPDIR="+m.tmp)
	m.host.Stderr = log
	if err := m.host.Start(); err != nil {
		m.Fatal(err)
	}
	m.did("host %d starts", m.host.Process.Pid)
	go func(host *exec.Cmd, ended chan struct{}) { // ends with the host
		_ = host.Wait()
		close(ended)
	}(m.host, m.ended)
}

// stop ends the host by a signal.
func (m *machine) stop(s syscall.Signal) {
	m.Helper()
	if m.host == nil {
		return
	}
	m.did("host %d gets %s", m.host.Process.Pid, s)
	_ = m.host.Process.Signal(s)
	select {
	case <-m.ended:
	case <-time.After(30 * time.Second): // 3 s on an idle machine
		_ = m.host.Process.Signal(syscall.SIGQUIT)
		<-m.ended
		m.Errorf("the host did not end\n%s", m.evidence())
	}
	m.host = nil
}

// plugins returns the processes of a mode, or of all modes if mode is empty.
func (m *machine) plugins(mode string) []int {
	var pids []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		name, _, _ := strings.Cut(string(line), "\x00")
		if strings.HasPrefix(name, filepath.Join(m.dir, launch.Prefix+mode)) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

func (m *machine) kill(mode string) {
	for _, pid := range m.plugins(mode) {
		m.did("plugin %s, pid %d, is killed", mode, pid)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (m *machine) end() {
	m.stop(syscall.SIGKILL)
	m.kill("")
	eventually.True(m, "no plugin is left", func() bool { return len(m.plugins("")) == 0 })
}

// until waits until ok returns true for the state of the kernel.
func (m *machine) until(what string, ok func(kernelState) bool) {
	m.Helper()
	err := eventually.Try(45*time.Second, func() error {
		var s kernelState
		err := m.kernel.locked(func() (err error) { s, err = m.kernel.read(); return err })
		if err == nil && !ok(s) {
			return fmt.Errorf("%v", s)
		}
		return eventually.Final(err)
	})
	if err != nil {
		m.Fatalf("never %s: %v\n%s", what, err, m.evidence())
	}
}

func (m *machine) evidence() string {
	log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
	m.told.Lock()
	defer m.told.Unlock()
	return strings.Join(m.story, "\n") + "\n" + string(log)
}

// held checks that no step made a desired frontend unreachable.
func (m *machine) held() {
	m.Helper()
	bad, err := os.ReadFile(filepath.Join(m.kernel.dir, "violations"))
	if len(bad) > 0 || !errors.Is(err, os.ErrNotExist) {
		m.Errorf("reachable before a step, and not after it:\n%s\n%s", bad, m.evidence())
	}
}

// spoil changes the state file that the next host finds.
func (m *machine) spoil(mode string) {
	other := map[string]string{"a": "b", "b": "a"}[mode]
	switch m.IntN(6) {
	case 0:
		m.did("mode.json is gone")
		_ = os.Remove(filepath.Join(m.dir, "state/mode.json")) // it may not be there yet
	case 1:
		m.did("mode.json says that %s serves", mode)
		m.write("state/mode.json", `{"serving":"`+mode+`"}`)
	case 2:
		m.did("mode.json says that %s serves, and %s is left", mode, other)
		m.write("state/mode.json", fmt.Sprintf(`{"serving":%q,"left":[%q]}`, mode, other))
	case 3:
		m.did("the state files are nonsense")
		m.write("state/mode.json", "{")
	}
}

// crashAfter makes a plugin kill itself after a number of further steps.
func (m *machine) crashAfter(steps int) {
	m.did("a plugin is killed after %d steps", steps)
	m.write("kernel/crash", fmt.Sprint(steps))
}

func (m *machine) crashed() {
	m.Helper()
	m.until("a plugin was killed", func(kernelState) bool {
		_, err := os.Stat(filepath.Join(m.kernel.dir, "crash"))
		return err != nil
	})
}

// reaches waits until the log contains a text.
func (m *machine) reaches(what string) {
	m.Helper()
	m.until("logged "+what, func(kernelState) bool {
		log, _ := os.ReadFile(filepath.Join(m.dir, "log"))
		return strings.Contains(string(log), what)
	})
}

// kills kills the host once the log contains a text.
func (m *machine) kills(what string) {
	m.Helper()
	m.reaches(what)
	m.stop(syscall.SIGKILL)
}
