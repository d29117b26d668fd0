// SPDX-License-Identifier: Apache-2.0

package test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/pointsman/pointsman/host/admin"
	"github.com/pointsman/pointsman/sdk/ledger"
	"github.com/pointsman/pointsman/test/built"
	"github.com/pointsman/pointsman/test/eventually"
)

// ownMountsEnv is set in the environment of a process that has its own mount namespace.
const ownMountsEnv = "TEST_MOUNT_NAMESPACE"

// TestMain runs the tests, and then removes the binaries that they have built. As root, it runs the tests in a new mount
// namespace with a private ledger.
func TestMain(m *testing.M) {
	if os.Getuid() == 0 && os.Getenv(ownMountsEnv) == "" {
		cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
		cmd.Env = append(os.Environ(), ownMountsEnv+"=1")
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(cmd.ProcessState.ExitCode())
	}
	if os.Getuid() == 0 {
		if err := ledger.Private(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(programs.dir)
	os.Exit(code)
}

// userspace is the file name of the plugin under test.
const userspace = "pointsman-dataplane-userspace"

// programs is the folder of the built binaries. It is set by binaries.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

// binaries builds pointsman and the userspace plugin once, and returns their folder. The plugin is in its subfolder
// plugins, which a host finds only by pluginDirs.
func binaries(t *testing.T) string {
	t.Helper()
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "pointsman-test-"); programs.err != nil {
			return
		}
		programs.err = errors.Join(
			built.Into(programs.dir, "", "./host/pointsman", "./sdk/sdktest/pointsman-conformance"),
			built.Into(filepath.Join(programs.dir, "plugins"), "", "./plugins/userspace/"+userspace))
	})
	if programs.err != nil {
		t.Fatalf("build the binaries: %v", programs.err)
	}
	return programs.dir
}

// loopback is a /16 of 127.0.0.0/8 that this process has reserved for its tests.
var loopback struct {
	once   sync.Once
	prefix string       // such as "127.221."
	guard  net.Listener // the process that listens here has reserved the /16
	taken  atomic.Int32 // number of /24 networks that tests use
}

// ownNet returns the prefix of a /24 network that no other test uses, such as "127.221.7.".
func ownNet(t *testing.T) string {
	t.Helper()
	loopback.once.Do(func() {
		for n := 221; n < 250 && loopback.guard == nil; n++ {
			prefix := fmt.Sprintf("127.%d.", n)
			if guard, err := net.Listen("tcp4", prefix+"0.1:7079"); err == nil {
				loopback.prefix, loopback.guard = prefix, guard
			}
		}
	})
	if loopback.guard == nil {
		t.Fatal("no free network from 127.221.0.0/16 to 127.249.0.0/16: other tests listen at port 7079 of each")
	}
	return fmt.Sprintf("%s%d.", loopback.prefix, loopback.taken.Add(1))
}

// A system is a folder with a config and manifests, and the host that uses them.
type system struct {
	t       *testing.T
	dir     string
	net     string   // prefix of its addresses, by ownNet
	plugins string   // folder of its plugins
	env     []string // added to the host's environment
	*admin.Client

	cmd    *exec.Cmd
	exited chan struct{}
}

// newSystem creates the folder. Call start to start the host.
func newSystem(t *testing.T) *system {
	t.Helper()
	bin := binaries(t)
	dir, err := os.MkdirTemp("", "pointsman-")
	if err != nil {
		t.Fatal(err)
	}
	s := &system{t: t, dir: dir, net: ownNet(t), plugins: filepath.Join(bin, "plugins"), Client: admin.NewClient(filepath.Join(dir, "admin.sock"))}
	t.Cleanup(func() {
		s.stop()
		_ = os.RemoveAll(dir)
	})
	if err := os.Mkdir(s.path("services"), 0o755); err != nil {
		t.Fatal(err)
	}
	s.config("")
	return s
}

func (s *system) path(name string) string { return filepath.Join(s.dir, name) }

// config writes the host's config file and appends more.
func (s *system) config(more string) { s.write("host.yaml", s.text(more)) }

func (s *system) text(more string) string {
	return fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: userspace
source: {files: {path: services}}
minSyncPeriod: 20ms
syncPeriod: 2s
adminSocket: admin.sock
stateDir: state
healthzBindAddress: ""
metricsBindAddress: ""
oomScoreAdj: 0
plugins: {userspace: {options: {redirect: never}}}
pluginDirs: [%s]
%s`, s.plugins, more)
}

// manifest writes a manifest file. It replaces "NET." by the prefix of the system's addresses.
func (s *system) manifest(name, text string) {
	s.write(filepath.Join("services", name), strings.ReplaceAll(text, "NET.", s.net))
}

// write replaces a file atomically.
func (s *system) write(name, text string) {
	s.t.Helper()
	next := filepath.Join(filepath.Dir(s.path(name)), "."+filepath.Base(name)+".new")
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, s.path(name))); err != nil {
		s.t.Fatal(err)
	}
}

func (s *system) remove(name string) {
	s.t.Helper()
	if err := os.Remove(s.path(name)); err != nil {
		s.t.Fatal(err)
	}
}

// start starts the host, and waits until it answers.
func (s *system) start(args ...string) {
	s.t.Helper()
	log, err := os.OpenFile(s.path("host.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(binaries(s.t), "pointsman"), append([]string{"run", "--config", s.path("host.yaml")}, args...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), s.env...)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	exited := make(chan struct{})
	s.cmd, s.exited = cmd, exited
	go func() { // ends with the host
		_ = cmd.Wait()
		close(exited)
	}()
	s.until("the host answers", func() error {
		_, err := s.Status(s.t.Context())
		return err
	})
}

// serving waits until the dataplane has confirmed all Services.
func (s *system) serving() {
	s.t.Helper()
	s.until("all Services are served", func() error {
		st, err := s.Status(s.t.Context())
		switch {
		case err != nil:
			return err
		case st.Dataplane.State != "serving" || st.Sync.Acked == 0 || st.Sync.Pending > 0:
			return fmt.Errorf("dataplane %s (%s), sync %+v", st.Dataplane.State, st.Dataplane.Why, st.Sync)
		}
		return nil
	})
}

// signal sends the host a signal, and waits until the host has ended.
func (s *system) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("send %s to the host: %v", sig, err)
	}
	select {
	case <-s.exited:
	case <-time.After(long):
		s.t.Fatalf("the host did not end within %s of %s", long, sig)
	}
}

// stop ends the host and its plugin, and logs the host's log if the test has failed.
func (s *system) stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-s.exited:
		case <-time.After(long):
			_ = s.cmd.Process.Kill()
			<-s.exited
			s.t.Errorf("the host did not end within %s of SIGINT", long)
		}
	}
	if s.t.Failed() {
		s.t.Logf("the host's log:\n%s", s.log())
	}
}

func (s *system) log() string {
	text, _ := os.ReadFile(s.path("host.log"))
	return string(text)
}

// plugin waits until a dataplane is active, and returns its PID.
func (s *system) plugin() int {
	s.t.Helper()
	pid := 0
	s.until("a dataplane is active", func() error {
		st, err := s.Status(s.t.Context())
		if pid = st.Dataplane.PID; err == nil && pid == 0 {
			err = fmt.Errorf("the status is %+v", st.Dataplane)
		}
		return err
	})
	return pid
}

// output is the stdout and stderr of a verb, and its exit code.
type output struct {
	out, err string
	code     int
}

// run runs pointsman in the system's folder.
func (s *system) run(words ...string) output {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), filepath.Join(binaries(s.t), "pointsman"), words...)
	cmd.Dir = s.dir
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		s.t.Fatalf("pointsman %s: %v", strings.Join(words, " "), err)
	}
	return output{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// verb runs pointsman with the system's config.
func (s *system) verb(words ...string) output {
	s.t.Helper()
	return s.run(append(words, "--config", s.path("host.yaml"))...)
}

// long is the time limit of waits for events that take seconds on an idle machine.
const long = 2 * time.Minute

// until is within with the limit long.
func (s *system) until(what string, check func() error) {
	s.t.Helper()
	s.within(long, what, check)
}

// within waits until check returns no error, at most timeout. It fails at once if the host has ended.
func (s *system) within(timeout time.Duration, what string, check func() error) {
	s.t.Helper()
	eventually.SucceedsWithin(s.t, timeout, what, func() error {
		ended := false
		select {
		case <-s.exited:
			ended = true
		default: // it runs, or has not been started
		}
		err := check()
		if err != nil && ended {
			err = eventually.Final(fmt.Errorf("%w (the host ended)", err))
		}
		return err
	})
}

// alive reports whether a process runs. A zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return err == nil && !strings.HasPrefix(after, "Z")
}
