// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// apartEnv is set in the process that has a network namespace of its own.
const apartEnv = "POINTSMAN_HAPROXY_APART"

// TestMain runs the tests in a network namespace of their own, where root may make one: there is one
// HAProxy of this dataplane in each.
func TestMain(m *testing.M) {
	if os.Geteuid() != 0 || os.Getenv(apartEnv) != "" {
		code := m.Run()
		if programs.dir != "" {
			_ = os.RemoveAll(programs.dir)
		}
		os.Exit(code)
	}
	cmd := exec.Command("unshare", append([]string{"--net", "sh", "-c", `ip link set lo up && exec "$0" "$@"`}, os.Args...)...)
	cmd.Env = append(os.Environ(), apartEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	err := cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		fmt.Fprintln(os.Stderr, "run the tests in a network namespace:", err)
	}
	os.Exit(max(cmd.ProcessState.ExitCode(), 0))
}

// programs is where the binaries are, once a test has asked for them.
var programs struct {
	once sync.Once
	dir  string
	err  error
}

// binaries builds the host, this plugin and the userspace plugin, once.
func binaries(t *testing.T) string {
	t.Helper()
	if os.Getenv(apartEnv) == "" {
		t.Skip("needs root, for a network namespace")
	}
	if _, err := exec.LookPath("haproxy"); err != nil {
		t.Skip("needs HAProxy; on Debian: apt-get install haproxy")
	}
	programs.once.Do(func() {
		if programs.dir, programs.err = os.MkdirTemp("", "haproxy-test-"); programs.err != nil {
			return
		}
		build := func(dir string, words ...string) error {
			cmd := exec.Command("go", append([]string{"build", "-o"}, words...)...)
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("go build: %w: %s", err, out)
			}
			return nil
		}
		programs.err = errors.Join(
			build("../..", programs.dir+"/", "./host/pointsman", "./plugins/userspace/pointsman-dataplane-userspace"),
			build(".", filepath.Join(programs.dir, "pointsman-dataplane-haproxy"), "."))
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.dir
}

// A node is a host on this machine, with its config and manifests in a folder.
type node struct {
	*testing.T
	bin, dir string
	cmd      *exec.Cmd
}

// newNode starts a host that serves by HAProxy; alone: by a process of the plugin that the test starts.
func newNode(t *testing.T, alone bool) *node {
	t.Helper()
	n := &node{T: t, bin: binaries(t), dir: t.TempDir()}
	if err := os.Mkdir(n.path("services"), 0o755); err != nil {
		t.Fatal(err)
	}
	own := ""
	if alone {
		own = ", haproxy: {address: \"" + n.address() + "\"}"
	}
	n.write("host.yaml", fmt.Sprintf(`apiVersion: pointsman.dev/v1alpha1
kind: HostConfig
mode: haproxy
source: {files: {path: services}}
minSyncPeriod: 20ms
syncPeriod: 2s
adminSocket: admin.sock
stateDir: state
healthzBindAddress: ""
metricsBindAddress: ""
oomScoreAdj: 0
swap: {drainTimeout: 5s}
plugins: {userspace: {options: {redirect: never}}%s}
pluginDirs: [%s]
`, own, n.bin))
	t.Cleanup(n.stop)
	log, err := os.Create(n.path("host.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	n.cmd = exec.Command(filepath.Join(n.bin, "pointsman"), "run", "--config", n.path("host.yaml"))
	n.cmd.Stdout, n.cmd.Stderr = log, log
	if err := n.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.until("the host answers", func() error { _, err := n.status(); return err })
	return n
}

// address is where a process of the plugin listens that runs by itself.
func (n *node) address() string { return "unix://" + n.path("own/s") }

// plugin starts a process of the plugin that runs by itself. It ends with the test.
func (n *node) plugin() *exec.Cmd {
	n.Helper()
	cmd := exec.Command(filepath.Join(n.bin, "pointsman-dataplane-haproxy"), "--listen", n.address())
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		n.Fatal(err)
	}
	n.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// write puts a file in place at once.
func (n *node) write(name, text string) {
	n.Helper()
	next := filepath.Join(filepath.Dir(n.path(name)), "."+filepath.Base(name)+".new")
	if err := errors.Join(os.WriteFile(next, []byte(text), 0o644), os.Rename(next, n.path(name))); err != nil {
		n.Fatal(err)
	}
}

// stop ends the host, and has HAProxy cleaned up.
func (n *node) stop() {
	if n.Failed() {
		text, _ := os.ReadFile(n.path("host.log"))
		n.Logf("the host's log:\n%s", text)
	}
	if n.cmd != nil && n.cmd.Process != nil {
		_ = n.cmd.Process.Signal(syscall.SIGINT)
		ended := make(chan error, 1)
		go func() { ended <- n.cmd.Wait() }() // ends with the host
		select {
		case <-ended:
		case <-time.After(long):
			_ = n.cmd.Process.Kill()
			n.Errorf("the host did not end within %s", long)
		}
	}
	if out, err := exec.Command(filepath.Join(n.bin, "pointsman-dataplane-haproxy"), "cleanup").CombinedOutput(); err != nil {
		n.Errorf("cleanup: %v: %s", err, out)
	}
}

// verb runs pointsman with these words and the node's config.
func (n *node) verb(words ...string) (string, error) {
	out, err := exec.CommandContext(n.Context(), filepath.Join(n.bin, "pointsman"), append(words, "--config", n.path("host.yaml"))...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("pointsman %s: %w: %s", strings.Join(words, " "), err, out)
	}
	return string(out), err
}

// A state is what these tests read of "pointsman status".
type state struct {
	Dataplane struct {
		State, Why string
		PID        int
	}
	Sync struct{ Acked, Pending int }
}

func (n *node) status() (s state, err error) {
	out, err := exec.CommandContext(n.Context(), filepath.Join(n.bin, "pointsman"), "status", "-o", "json", "--config", n.path("host.yaml")).Output()
	if err == nil || len(out) > 0 { // it exits otherwise while the node is not well
		err = json.Unmarshal(out, &s)
	}
	return s, err
}

// long is how long a test waits for what comes soon, on a machine that is busy.
const long = 2 * time.Minute

func (n *node) until(what string, check func() error) {
	n.Helper()
	end := time.Now().Add(long)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			n.Fatalf("%s: not within %s: %v", what, long, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// service writes the manifests of a Service at 127.30.0.N, port 20080.
func (n *node) service(name string, number int, spec string, endpoints ...string) {
	n.Helper()
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: ns}
spec:
  clusterIP: %[2]s
  ports:
  - {name: p, port: 20080, protocol: TCP}
%[3]s
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, namespace: ns, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports:
- {name: p, port: 19000, protocol: TCP}
endpoints:
`, name, clusterIP(number), spec)
	for _, ep := range endpoints {
		text += fmt.Sprintf("- addresses: [%q]\n", ep)
	}
	n.write(filepath.Join("services", name+".yaml"), text)
}

func clusterIP(number int) string { return fmt.Sprintf("127.30.0.%d", number) }
func frontend(number int) string  { return clusterIP(number) + ":20080" }
